// The commands of the command line, one function each. They return the exit code, and throw
// UsageError for input that makes no sense.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace tegula::cli {

struct MeshCall {
  std::string text;
  bool all = false;
};
int show_mesh(const MeshCall& call, std::ostream& out);

struct SpecCall {
  std::string text;
  bool all = false;
};
int show_spec(const SpecCall& call, std::ostream& out);

// SPEC TO, or TENSOR FROM TO with the tensor on its mesh.
struct PlanCall {
  std::string first;
  std::string second;
  std::string third;  // empty in the first form
  std::optional<std::int64_t> cap;
};
int show_plan(const PlanCall& call, std::ostream& out);

// Names of ops, with or without overload; none: all of them.
struct RulesCall {
  std::vector<std::string> names;
};
int show_rules(const RulesCall& call, std::ostream& out);

struct BenchCall {
  std::vector<std::string> arguments;
};
// Runs the program tegula-bench that lies beside this one, with these arguments.
int run_bench(const BenchCall& call);

}  // namespace tegula::cli

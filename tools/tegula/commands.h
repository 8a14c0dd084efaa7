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
  bool coverage = false;
  std::vector<std::string> lists;  // files of overloads to count the coverage against
  std::string json;                // a file for what came of each overload; empty: none
  bool compare = false;
  std::string output;   // the file to write; empty: the standard output
  std::string gathers;  // a file that the coverage wrote as json; empty: none
};
int show_rules(const RulesCall& call, std::ostream& out);
// Runs tests/python/coverage.py under the Python of TEGULA_PYTHON (python3 if unset): it calls
// operators on two ranks and counts those that leave their operands where they are.
int run_coverage(const RulesCall& call);
// Runs bench/peers/communication.py in the same way: what calls send here and by PyTorch's DTensor.
// Names are of calls or of families of them.
int run_compare(const RulesCall& call);

// Paths of safetensors files, checkpoints, or folders of checkpoints, of which the newest counts.
struct InspectCall {
  std::vector<std::string> paths;  // one, or two that are compared
  bool verify = false;
  bool diff = false;
};
// Exit code 1 if two that are compared differ.
int inspect(const InspectCall& call, std::ostream& out);

struct BenchCall {
  std::vector<std::string> arguments;
};
// Runs the program tegula-bench that lies beside this one, with these arguments.
int run_bench(const BenchCall& call);

}  // namespace tegula::cli

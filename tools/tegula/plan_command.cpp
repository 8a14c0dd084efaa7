#include <ostream>

#include "tegula/plan/redistribute_planner.h"
#include "tools/tegula/commands.h"

namespace tegula::cli {
namespace {

// "S(0), R" -> "[S(0), R]"
std::string in_brackets(const std::string& placements) {
  return placements.starts_with("[") ? placements : "[" + placements + "]";
}

}  // namespace

int show_plan(const PlanCall& call, std::ostream& out) {
  const bool is_apart = !call.third.empty();
  const DTensorSpec from =
      parse_spec(is_apart ? call.first + " as " + in_brackets(call.second) : call.first);
  const std::string tensor = to_string(from.meta()) + " on " + to_string(from.mesh());
  const DTensorSpec to =
      parse_spec(tensor + " as " + in_brackets(is_apart ? call.third : call.second));
  out << explain(*RedistributePlanner().plan(from, to, {call.cap}));
  return 0;
}

}  // namespace tegula::cli

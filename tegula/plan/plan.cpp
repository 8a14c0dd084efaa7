// A step is what its kind is, over the axes that change, at the price of step_cost.h; a plan is a
// list of steps, and everything said about it is a sum or a maximum over them.
#include "tegula/plan/plan.h"

#include <algorithm>
#include <cstdio>
#include <ostream>
#include <sstream>

#include "tegula/base/saturating.h"
#include "tegula/base/table.h"
#include "tegula/base/text.h"
#include "tegula/plan/longest_shard.h"
#include "tegula/plan/step_cost.h"
#include "tegula/plan/tile_step.h"

namespace tegula {

using namespace inner;

namespace {

// "[R, S(0)[1]]": as the printed spec says it.
std::string as_text(const DTensorSpec& spec) {
  const std::string text = to_string(spec);
  return text.substr(text.rfind(" as ") + 4);
}

std::string axes_text(const Step& step) {
  std::vector<std::string> names;
  for (std::size_t axis : step.axes) names.push_back(step.before.mesh().axes()[axis].name);
  return join(names);
}

// "12.3": microseconds.
std::string time_text(std::int64_t picoseconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", static_cast<double>(picoseconds) * 1e-6);
  return text;
}

template <class Value>
std::int64_t total(const std::vector<Step>& steps, Value value) {
  std::int64_t sum = 0;
  for (const Step& step : steps) sum = saturating_sum(sum, value(step));
  return sum;
}

}  // namespace

Step step_between(const DTensorSpec& before, const DTensorSpec& after, const CostModel& model) {
  std::vector<std::size_t> axes = changed_axes(before, after);
  const StepKind kind = step_kind(before, after, axes);
  const std::int64_t bytes_before = tile_bytes(before);
  const std::int64_t bytes_after = tile_bytes(after);
  const StepCost cost =
      cost_of(kind, rates_of(model, before.mesh(), axes), bytes_before, bytes_after);
  return {kind,
          std::move(axes),
          before,
          after,
          cost.bytes_sent,
          peak_of(bytes_before, bytes_after),
          cost.picoseconds};
}

std::int64_t Plan::bytes_sent() const {
  return total(steps, [](const Step& step) { return step.bytes_sent; });
}

std::int64_t Plan::peak_bytes() const {
  std::int64_t peak = tile_bytes(from);
  for (const Step& step : steps) peak = std::max(peak, step.peak_bytes);
  return peak;
}

std::int64_t Plan::picoseconds() const {
  return total(steps, [](const Step& step) { return step.picoseconds; });
}

std::string to_string(const Step& step) {
  const std::string over = step.axes.empty() ? "" : " over " + axes_text(step);
  return std::string(name_of(step.kind)) + over + ": " + as_text(step.before) + " -> " +
         as_text(step.after);
}

std::string to_string(const Plan& plan) {
  std::vector<std::string> lines;
  for (const Step& step : plan.steps) lines.push_back(to_string(step));
  return join(lines, "\n");
}

std::ostream& operator<<(std::ostream& out, const Plan& plan) { return out << to_string(plan); }

std::string explain(const Plan& plan) {
  std::ostringstream out;
  out << "from    " << plan.from << "\nto      " << plan.to << "\n\n";
  Table table({"step", "does", "over", "to", "bytes sent", "peak bytes", "us"});
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    table.add({std::to_string(i + 1), std::string(name_of(step.kind)), axes_text(step),
               as_text(step.after), std::to_string(step.bytes_sent),
               std::to_string(step.peak_bytes), time_text(step.picoseconds)});
  }
  table.add({"", "in all", "", "", std::to_string(plan.bytes_sent()),
             std::to_string(plan.peak_bytes()), time_text(plan.picoseconds())});
  table.print(out);
  return out.str();
}

std::int64_t tile_bytes(const DTensorSpec& spec) {
  std::int64_t bytes = size_of(spec.meta().dtype());
  for (const DimCut& cut : spec.dim_cuts()) bytes = saturating_product(bytes, longest_shard(cut));
  return bytes;
}

}  // namespace tegula

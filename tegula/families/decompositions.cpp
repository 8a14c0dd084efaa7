// Ops made of other ops on DTensors, where a dim that they work along is cut: what has to be
// exchanged are totals, not tensors. Each is the op's definition. Sums along a cut dim stay owed
// until they are needed, and then one small reduction pays.
#include "tegula/families/families.h"
#include "tegula/families/recipes.h"

namespace tegula::inner::families {
namespace {

const RecipeTable& all_recipes() {
  static const RecipeTable all = [] {
    RecipeTable table;
    for (const auto* some :
         {&chunk_recipes(),     &definition_recipes(),    &distinct_recipes(),
          &extreme_recipes(),   &factorization_recipes(), &half_recipes(),
          &histogram_recipes(), &loss_recipes(),          &masked_lookup_recipes(),
          &norm_recipes(),      &normalization_recipes(), &product_recipes(),
          &reduction_recipes(), &repeat_recipes(),        &scan_recipes(),
          &sobol_recipes(),     &softmax_recipes(),       &sort_recipes(),
          &transform_recipes(), &unfold_recipes(),        &zeros_recipes()}) {
      table.insert(some->begin(), some->end());
    }
    return table;
  }();
  return all;
}

}  // namespace

void decompositions(const c10::OperatorHandle& op, OperatorNotes& notes) {
  const auto found = all_recipes().find(rule_name(toString(op.operator_name())));
  if (found != all_recipes().end()) notes.decomposition = found->second;
}

}  // namespace tegula::inner::families

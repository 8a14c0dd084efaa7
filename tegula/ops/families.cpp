// A list of families; the table of the process is filled from it at first use.
#include "tegula/ops/families.h"

namespace tegula {

using namespace inner;

const std::vector<RuleFamily>& rule_families() {
  static const std::vector<RuleFamily> all = {
      {"pointwise", families::add_pointwise},
      {"gradients of pointwise ops", families::add_pointwise_backward},
      {"products", families::add_products},
      {"reductions", families::add_reductions},
      {"norms", families::add_norms},
      {"lookups", families::add_lookups},
      {"losses", families::add_losses},
      {"attention", families::add_attention},
      {"joins", families::add_joins},
      {"indexing", families::add_indexing},
      {"optimizers", families::add_optimizers},
      {"within dims", families::add_within},
      {"matrices", families::add_matrices},
      {"convolutions", families::add_convolutions},
      {"pooling", families::add_pooling},
      {"resampling", families::add_resampling},
      {"channels", families::add_channels},
  };
  return all;
}

RuleTable& rule_table() {
  static RuleTable& table = []() -> RuleTable& {
    static RuleTable* made = new RuleTable;  // outlives every kernel
    for (const RuleFamily& family : rule_families()) family.add_to(*made);
    return *made;
  }();
  return table;
}

}  // namespace tegula

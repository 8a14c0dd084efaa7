#include "tegula/ops/families.h"

namespace tegula {

RuleTable& rule_table() {
  static RuleTable& table = [] () -> RuleTable& {
    static RuleTable* made = new RuleTable;  // outlives every kernel
    families::add_pointwise(*made);
    families::add_pointwise_backward(*made);
    families::add_products(*made);
    families::add_reductions(*made);
    families::add_norms(*made);
    families::add_lookups(*made);
    families::add_attention(*made);
    families::add_joins(*made);
    families::add_optimizers(*made);
    return *made;
  }();
  return table;
}

}  // namespace tegula

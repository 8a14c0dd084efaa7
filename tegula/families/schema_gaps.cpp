// Operators whose schemas do not say all.
#include <set>
#include <string>

#include "tegula/families/families.h"

namespace tegula::inner::families {

void schema_gaps(const c10::OperatorHandle& op, OperatorNotes& notes) {
  const std::string& name = op.operator_name().name;
  // batch norm in its older form changes the running statistics without saying so
  if (name == "aten::native_batch_norm" || name == "aten::batch_norm_update_stats") {
    notes.also_written = {"running_mean", "running_var"};
  }
  // attention on the CPU is tagged as random but refuses the dropout that would make it so
  notes.draws_nothing = name == "aten::_scaled_dot_product_flash_attention_for_cpu";
  static const std::set<std::string> fills = {"aten::fill_", "aten::zero_", "aten::masked_fill_",
                                              "aten::index_fill_"};
  notes.may_overlap = fills.contains(name);
}

}  // namespace tegula::inner::families

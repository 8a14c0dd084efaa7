// Copies of views (select_copy), and copies of a tensor with a view of it replaced
// (select_scatter): the view, then a copy of it or into it.
#include <ATen/ATen.h>

#include <map>
#include <numeric>
#include <set>

#include "tegula/families/families.h"
#include "tegula/families/fresh_tensors.h"
#include "tegula/families/recut.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"

namespace tegula::inner::families {
namespace {

using c10::OperatorHandle;

std::string without_ending(const std::string& text, const std::string& ending) {
  return text.ends_with(ending) ? text.substr(0, text.size() - ending.size()) : "";
}

// "int_out" -> "int"
std::string overload_without_out(const std::string& overload) {
  if (overload == "out") return "";
  return overload.ends_with("_out") ? without_ending(overload, "_out") : overload;
}

// "aten::select_copy.int_out" -> aten::select.int; "aten::unsafe_split.Tensor", whose results are
// not views, either -> aten::split.Tensor
std::optional<OperatorHandle> view_of_copy(const OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  std::string view = without_ending(name.name, "_copy");
  if (name.name.starts_with("aten::unsafe_split")) view = "aten::" + name.name.substr(13);
  if (view.empty()) return std::nullopt;
  return c10::Dispatcher::singleton().findSchema({view, overload_without_out(name.overload_name)});
}

bool is_view(const OperatorHandle& op) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  return !arguments.empty() && arguments[0].alias_info() && !arguments[0].alias_info()->isWrite();
}

// Not of strides, which mean nothing in tiles, nor of what autograd makes for itself; windows that
// overlap have another way (unfolds.cpp).
bool can_be_copied(const OperatorHandle& view) {
  static const std::set<std::string> others = {"aten::as_strided", "aten::_fw_primal",
                                               "aten::_make_dual", "aten::unfold"};
  return is_view(view) && !others.contains(view.operator_name().name);
}

// The view's results on the first arguments of the call; the view takes no others.
c10::IValue viewed(const OperatorHandle& view, Arguments arguments) {
  const Arguments taken = arguments.first(view.schema().arguments().size());
  Values stack(taken.begin(), taken.end());
  view.callBoxed(&stack);
  return std::move(stack.front());
}

at::Tensor copied(const at::Tensor& view) { return view.clone(at::MemoryFormat::Contiguous); }

// Regrouped elements whose rows are cut: where a row of self and one of the result end together,
// a shard may. The rows that lie between go to a neighbour.
Recipe regrouped_copy(const Call& call) {
  const at::Tensor& self = call.arguments()[0].toTensor();
  const std::optional<std::int64_t> cut = only_cut_dim(self);
  if (!cut || *cut != 0 || self.numel() == 0 || StrictMode::is_on()) return nullptr;
  const at::Tensor view = viewed(*view_of_copy(call.op()), call.arguments()).toTensor();
  if (view.dim() == 0 || !payload_in(view) || !payload_in(view)->link()) return nullptr;
  const std::int64_t row = self.numel() / self.size(0);
  const std::int64_t unit = std::lcm(row, view.numel() / view.size(0));
  const auto shards = static_cast<std::int64_t>(shard_sizes(*payload_in(self), 0).size());
  if (self.numel() / unit < shards) return nullptr;
  return [rows = unit / row, sizes = view.sizes().vec()](Arguments a) -> Values {
    const at::Tensor whole_rows = copied(cut_by_units(a[0].toTensor(), 0, rows));
    return {whole_rows.view(sizes)};
  };
}

// A new tensor, or several.
Recipe copy_of_view(const Call& call) {
  if (!call.tensors().front().payload) return nullptr;
  if (call.facts().name == "aten::view_copy") {
    if (Recipe recipe = regrouped_copy(call)) return recipe;
  }
  return [view = *view_of_copy(call.op())](Arguments arguments) -> Values {
    return {with_tensors(viewed(view, arguments),
                         [](int, const at::Tensor& one) { return copied(one); })};
  };
}

// ... into tensors of their shapes.
Recipe copies_of_views_into(const Call& call) {
  const OperatorHandle view = *view_of_copy(call.op());
  const c10::IValue views = viewed(view, call.arguments());
  const c10::ArrayRef<c10::IValue> outs = call.arguments().back().toListRef();
  if (views.toListRef().size() != outs.size()) return nullptr;
  for (std::size_t k = 0; k < outs.size(); ++k) {
    const at::Tensor& out = outs[k].toTensor();
    const at::Tensor& one = views.toListRef()[k].toTensor();
    const bool fits =
        payload_in(out) && out.sizes() == one.sizes() && out.scalar_type() == one.scalar_type();
    if (!fits) return nullptr;
  }
  return [view](Arguments arguments) -> Values {
    const c10::IValue from = viewed(view, arguments);
    const c10::ArrayRef<c10::IValue> into = arguments.back().toListRef();
    for (std::size_t k = 0; k < into.size(); ++k) {
      into[k].toTensor().copy_(from.toListRef()[k].toTensor());
    }
    return {};
  };
}

// ... into a tensor of its shape.
Recipe copy_of_view_into(const Call& call) {
  if (!call.tensors().front().payload) return nullptr;
  if (call.arguments().back().isTensorList()) return copies_of_views_into(call);
  if (!call.arguments().back().isTensor()) return nullptr;
  const OperatorHandle view = *view_of_copy(call.op());
  const at::Tensor out = call.arguments().back().toTensor();
  const at::Tensor shape = viewed(view, call.arguments()).toTensor();
  if (!payload_in(out) || shape.sizes() != out.sizes()) return nullptr;
  if (shape.scalar_type() != out.scalar_type()) return nullptr;
  if (call.facts().name == "aten::view_copy.out") {
    if (const Recipe recipe = regrouped_copy(call)) {
      return [recipe](Arguments arguments) -> Values {
        arguments.back().toTensor().copy_(recipe(arguments).front().toTensor());
        return {arguments.back()};
      };
    }
  }
  return [view](Arguments arguments) -> Values {
    const at::Tensor& into = arguments.back().toTensor();
    into.copy_(viewed(view, arguments).toTensor());
    return {into};
  };
}

struct WrittenView {
  const char* name;
  const char* overload;
};

// The view takes self and what follows the source.
const std::map<std::string, WrittenView>& views_written() {
  static const std::map<std::string, WrittenView> table = {
      {"aten::select_scatter", {"aten::select", "int"}},
      {"aten::slice_scatter", {"aten::slice", "Tensor"}},
      {"aten::diagonal_scatter", {"aten::diagonal", ""}},
  };
  return table;
}

at::Tensor view_to_write(const WrittenView& name, const at::Tensor& self, Arguments arguments) {
  const OperatorHandle view =
      c10::Dispatcher::singleton().findSchemaOrThrow(name.name, name.overload);
  Values stack{self};
  stack.insert(stack.end(), arguments.begin() + 2, arguments.end());
  view.callBoxed(&stack);
  return stack.front().toTensor();
}

// Where ranks can write to the view by themselves.
Recipe replaced_view(const Call& call) {
  const at::Tensor self = call.arguments()[0].toTensor();
  const Payload* payload = payload_in(self);
  if (!payload || !holds_values(*payload) || !payload->spec().is_sharded()) return nullptr;
  const WrittenView& name = views_written().at(call.facts().name);
  const at::Tensor view = view_to_write(name, self, call.arguments());
  const Link* link = payload_in(view)->link();
  if (view.sizes() != call.arguments()[1].toTensor().sizes() || (link && !link->row)) {
    return nullptr;
  }
  return [&name](Arguments arguments) -> Values {
    at::Tensor copy = arguments[0].toTensor().clone(at::MemoryFormat::Contiguous);
    view_to_write(name, copy, arguments).copy_(arguments[1].toTensor());
    return {copy};
  };
}

}  // namespace

void view_copies(const c10::OperatorHandle& op, OperatorNotes& notes) {
  if (views_written().contains(toString(op.operator_name()))) notes.decomposition = replaced_view;
  const std::optional<OperatorHandle> view = view_of_copy(op);
  if (!view || !view->hasSchema() || !can_be_copied(*view)) return;
  const bool has_out = op.schema().arguments().back().is_out();
  notes.decomposition = has_out ? copy_of_view_into : copy_of_view;
}

}  // namespace tegula::inner::families

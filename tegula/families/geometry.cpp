// Operators that change what a tensor is, not its values: in-place forms of views, and set_.
#include <ATen/ATen.h>

#include <map>

#include "tegula/base/error.h"
#include "tegula/dispatch/views.h"
#include "tegula/families/families.h"
#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"
#include "tegula/payload/local_call.h"

namespace tegula::inner::families {
namespace {

struct ViewName {
  const char* name;
  const char* overload;
};

const std::map<std::string, ViewName>& views_in_place() {
  static const std::map<std::string, ViewName> table = {
      {"aten::squeeze_", {"aten::squeeze", ""}},
      {"aten::squeeze_.dim", {"aten::squeeze", "dim"}},
      {"aten::squeeze_.dims", {"aten::squeeze", "dims"}},
      {"aten::unsqueeze_", {"aten::unsqueeze", ""}},
      {"aten::transpose_", {"aten::transpose", "int"}},
      {"aten::t_", {"aten::t", ""}},
      {"aten::as_strided_", {"aten::as_strided", ""}},
  };
  return table;
}

// The tensor becomes what the view of it is.
Values change_geometry(const Call& call) {
  const ViewName& view = views_in_place().at(call.facts().name);
  const at::Tensor self = call.arguments()[0].toTensor();
  const OperatorEntry& entry = operator_table().entry(
      c10::Dispatcher::singleton().findSchemaOrThrow(view.name, view.overload));
  const ViewResult result = view_result(Call(entry, call.arguments()));
  install(self, result.payload);
  self.unsafeGetTensorImpl()->set_storage_offset(result.storage_offset);
  return {self};
}

Values refuse_storage(const Call& call) {
  throw UsageError("a DTensor cannot be given a storage")
      .fact("op", call.text())
      .hint(
          "use copy_ to change its values; to load plain values into a module, put a "
          "tegula::ImplicitReplication guard around torch::load");
}

// self takes over what source is.
Values set_to_tensor(const Call& call) {
  const at::Tensor self = call.arguments()[0].toTensor();
  const at::Tensor source = call.arguments()[1].toTensor();
  const PayloadPtr payload = payload_of(self);
  const PayloadPtr source_payload = payload_of(source);
  if (payload && source_payload) {
    install(self, source_payload);
    return {self};
  }
  // as torch::load does it: the values of a plain tensor, placed as self is
  const bool can_be_loaded = payload && ImplicitReplication::is_on() &&
                             source.sizes() == self.sizes() &&
                             source.scalar_type() == self.scalar_type();
  if (!can_be_loaded) return refuse_storage(call);
  const BelowAutograd below;
  payload->write(source);
  return {self};
}

}  // namespace

void geometry(const c10::OperatorHandle& op, OperatorNotes& notes) {
  const std::string name = toString(op.operator_name());
  if (views_in_place().contains(name)) {
    notes.change = change_geometry;
  } else if (name == "aten::set_.source_Tensor") {
    notes.change = set_to_tensor;
  } else if (name.starts_with("aten::set_")) {
    notes.change = refuse_storage;
  }
}

}  // namespace tegula::inner::families

// Operators that change what a tensor is, not its values: in-place forms of views, and set_.
#include <ATen/ATen.h>

#include <map>

#include "tegula/base/error.h"
#include "tegula/comm/comm_log.h"
#include "tegula/dispatch/views.h"
#include "tegula/families/families.h"
#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"
#include "tegula/payload/host_errors.h"
#include "tegula/payload/local_call.h"
#include "tegula/redistribute/transfer.h"
#include "tegula/spec/placed_otherwise.h"

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

[[noreturn]] void refuse_storage(const std::string& op, const at::Tensor& self) {
  throw UsageError("a DTensor cannot be given a storage")
      .fact("op", op)
      .fact("self", described(self))
      .hint("use copy_ to change its values");
}

Values refuse_storage(const Call& call) {
  refuse_storage(call.facts().name, call.arguments()[0].toTensor());
}

// The values of a plain tensor, placed as self is: what torch::load does. The data of the mesh's
// first rank counts, unless it is said that all ranks have the same.
void load(const Payload& self, const at::Tensor& source) {
  const BelowAutograd below;
  const CommLabel label("torch::load");
  if (ImplicitReplication::is_on() || self.link()) return self.write(source);
  const DTensorSpec to = densely(self.spec());
  const DeviceMesh& mesh = to.mesh();
  const std::int64_t first = mesh.ranks(mesh.fiber_of(self.world().rank()).value_or(0)).front();
  const at::Tensor tile = scatter_from(self.world(), source, first, to);
  if (self.coordinate()) self.tile().copy_(tile);
  self.note_write();
}

}  // namespace

void geometry(const c10::OperatorHandle& op, OperatorNotes& notes) {
  const std::string name = toString(op.operator_name());
  if (views_in_place().contains(name)) {
    notes.change = change_geometry;
  } else if (name.starts_with("aten::set_")) {
    notes.change = refuse_storage;
  }
}

at::Tensor& set_to_tensor(at::Tensor& self, const at::Tensor& source) {
  with_host_errors([&] {
    const PayloadPtr payload = payload_of(self);
    const PayloadPtr source_payload = payload_of(source);
    if (payload && source_payload) {
      install(self, source_payload);
    } else if (payload && source.sizes() == self.sizes() &&
               source.scalar_type() == self.scalar_type()) {
      load(*payload, source);
    } else {
      refuse_storage("aten::set_", self);
    }
  });
  return self;
}

}  // namespace tegula::inner::families

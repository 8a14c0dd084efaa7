// What makes an at::Tensor distributed: the payload that rides along with it.
//
// The outer tensor has the whole tensor's sizes, strides and dtype, dispatch key PrivateUse3 and no
// storage. Its payload says where the data is. Payloads are immutable; a tensor that changes shape
// in place gets a new one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "tegula/bridge/torch_types.h"
#include "tegula/comm/world.h"
#include "tegula/payload/policies.h"
#include "tegula/payload/recycled.h"
#include "tegula/payload/reduced_forms.h"
#include "tegula/payload/rows.h"
#include "tegula/redistribute/redistribute_tile.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

class Payload;
using PayloadPtr = c10::intrusive_ptr<Payload>;

// A view that no rank can alias (one row of a tensor whose rows are cut, say): it holds no data of
// its own but reads and writes the tensor it is a view of.
struct Link {
  PayloadPtr base;
  // Of a plain whole base, or of the row if there is one. Null: the row itself.
  std::function<at::Tensor(const at::Tensor& whole)> view;
  std::optional<Row> row = std::nullopt;  // all that the view looks at

  // The view of a plain whole base.
  at::Tensor of_whole(const at::Tensor& whole) const;
  // Whether the ranks that have the row can write to it, each to its part.
  bool is_row() const { return row && !view; }
};

class Payload final : public c10::BackendMeta, public Recycled<RecycledKind::Payload> {
 public:
  // How the tile lies in memory. Regular: as the whole does, with the same dims next to each other;
  // Other: the product of a view that may be regular on some ranks only.
  enum class Layout { Regular, Other };

  Payload(at::Tensor tile, DTensorSpec spec, World world, Layout layout)
      : spec_(std::move(spec)), world_(std::move(world)), layout_(layout), tile_(std::move(tile)) {}
  // A tile that is on its way.
  Payload(AsyncTile tile, DTensorSpec spec, World world)
      : spec_(std::move(spec)), world_(std::move(world)), async_tile_(std::move(tile)) {}
  // A view of what `base` holds: it carries the policies on, and shares the memory.
  Payload(at::Tensor tile, DTensorSpec spec, Layout layout, const Payload& base);
  // The same data under another name: a view that changes nothing.
  Payload(DTensorSpec spec, const Payload& base);
  // The same data with other policies.
  Payload(PoliciesPtr policies, const Payload& base);
  Payload(Link link, DTensorSpec spec, World world, PoliciesPtr policies)
      : spec_(std::move(spec)),
        world_(std::move(world)),
        policies_(std::move(policies)),
        link_(std::make_shared<const Link>(std::move(link))) {}

  const DTensorSpec& spec() const { return spec_; }
  const World& world() const { return world_; }
  Layout layout() const { return layout_; }
  // Where this rank's tile is.
  at::Device device() const { return device_of(spec_.mesh()); }
  const PoliciesPtr& policies() const { return policies_; }  // null: none
  // Null unless it is gathered when it is used.
  const Gathering* gathering() const {
    return policies_ && policies_->policies.gathering ? &*policies_->policies.gathering : nullptr;
  }
  // Null unless this is a view without data of its own.
  const Link* link() const { return link_.get(); }
  // Where this rank is in the mesh; none if it is outside.
  std::optional<Coordinate> coordinate() const { return spec_.mesh().coordinate_of(world_.rank()); }
  // This rank's tile. Waits for it if it is on its way; communicates if this is a Link, which has
  // the whole on every rank: one that looks at a row takes that from those who have it.
  at::Tensor tile() const;
  // The tile as its bytes say it: without a conjugation or negation that is still to be done.
  at::Tensor resolved_tile() const;
  // Null if it is on its way, or this is a Link.
  const at::Tensor* tile_at_hand() const { return link_ || async_tile_ ? nullptr : &tile_; }
  // The whole tensor, plain and dense, its dims in memory in the order that the spec says.
  // Communicates. If every rank holds the whole, this is the tile itself, so that writing to it
  // writes to the tensor.
  at::Tensor whole() const;
  // Makes the tensor equal to this plain whole one. Does not communicate unless this is a Link.
  // O(tile).
  void write(const at::Tensor& whole) const;

  // What a route makes of the tile. If reductions are owed that it does, it is remembered
  // (reduced_forms.h), so nobody may write to it.
  at::Tensor tile_by(const Route& route) const;
  // What it is by `to`, which is whole over axes that it is gathered over; remembered
  // (gathered_forms.h), so nobody may write to it. Communicates.
  at::Tensor gathered_tile(const DTensorSpec& to) const;
  // To be called by whoever has written to the tile, or gives it to the user.
  void note_write() const;
  void note_exposed() const;
  // Of the tile's memory, shared with all views of it.
  std::shared_ptr<WriteCount> writes() const;

 private:
  // Whether something is remembered that a write makes wrong.
  bool counts_writes() const { return spec_.is_partial() || gathering() != nullptr; }
  ReducedForms& reduced_forms() const;

  DTensorSpec spec_;
  World world_;
  Layout layout_ = Layout::Regular;
  PoliciesPtr policies_;
  std::shared_ptr<const Link> link_;
  at::Tensor tile_;
  std::optional<AsyncTile> async_tile_;
  mutable std::mutex remembered_mutex_;  // of what follows, made when it is first needed
  mutable std::shared_ptr<WriteCount> writes_;
  mutable std::shared_ptr<ReducedForms> reduced_;
};

// Null for a plain or undefined tensor. Lives as long as the tensor keeps it.
inline Payload* payload_in(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(c10::DispatchKey::PrivateUse3)) return nullptr;
  return static_cast<Payload*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
}
// The same, kept.
inline PayloadPtr payload_of(const at::Tensor& tensor) {
  Payload* payload = payload_in(tensor);
  return payload ? PayloadPtr::unsafe_reclaim_from_nonowning(payload) : PayloadPtr();
}

// Notes the writes of an op when it is done, whether it succeeds or not.
class WritesOfOp {
 public:
  WritesOfOp() = default;
  ~WritesOfOp() {
    for (const PayloadPtr& payload : written_) payload->note_write();
  }
  WritesOfOp(const WritesOfOp&) = delete;
  WritesOfOp& operator=(const WritesOfOp&) = delete;

  void add(const at::Tensor& tensor) {
    const Payload* payload = payload_in(tensor);
    if (payload && (payload->spec().is_partial() || payload->link() || payload->gathering())) {
      written_.push_back(payload_of(tensor));
    }
  }

 private:
  c10::SmallVector<PayloadPtr, 2> written_;
};

// What outer tensors of one spec have in common, kept where many of them are made: the next one
// copies it.
class OuterForm {
 public:
  explicit OuterForm(const DTensorSpec& spec);

  const c10::TensorImpl& impl() const { return *impl_; }

 private:
  c10::intrusive_ptr<c10::TensorImpl> impl_;
};

// A new outer tensor.
at::Tensor outer_tensor(PayloadPtr payload);
// The same; the form is of the payload's spec.
at::Tensor outer_tensor(PayloadPtr payload, const OuterForm& form);
at::Tensor outer_tensor(at::Tensor tile, const DTensorSpec& spec, const World& world,
                        Payload::Layout layout = Payload::Layout::Regular);
// To be called before libtorch makes another tensor's impl of an outer tensor's (set_data): what it
// says when somebody asks for the storage goes along then.
void carry_storage_message(const at::Tensor& outer);
// Gives an outer tensor another payload, and the geometry that belongs to it.
void install(const at::Tensor& outer, PayloadPtr payload);

// Gives a DTensor other policies; views of it that exist already keep theirs.
void set_policies(const at::Tensor& outer, const Policies& policies);
// Those that it has.
Policies policies_of(const at::Tensor& outer);
// outer.set_data(data), the same tensor placed otherwise: its policies stay, unless it is on
// another mesh now.
void set_data_keeping_policies(at::Tensor outer, const at::Tensor& data);

// A plain whole tensor that every rank of the mesh has, as a replicated DTensor; nothing is sent.
// Ranks outside of the mesh keep its meta only.
at::Tensor replicated(const at::Tensor& whole, const DeviceMesh& mesh, const World& world);

}  // namespace tegula::inner

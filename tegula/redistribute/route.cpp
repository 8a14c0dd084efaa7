// The idea: everything that does not depend on the elements is worked out once: the plan, what this
// rank does in each step, the groups, the last tile's layout. Between steps a tile keeps whatever
// strides it has and may be a view; only the end is laid out, which copies nothing if the last step
// left a dense tile of its own.
#include "tegula/redistribute/route.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

#include "tegula/base/error.h"
#include "tegula/bridge/profiled.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/plan/redistribute_planner.h"
#include "tegula/redistribute/carry_out.h"
#include "tegula/redistribute/tile_layout.h"

namespace tegula::inner {
namespace {

enum class Kind { Whole, Real, Complex };

Kind kind_of(at::ScalarType type) {
  if (at::isComplexType(type)) return Kind::Complex;
  return at::isFloatingType(type) ? Kind::Real : Kind::Whole;
}

void check_wire(at::ScalarType wire, const DTensorSpec& spec) {
  if (kind_of(wire) == kind_of(scalar_type_of(spec.meta().dtype()))) return;
  throw UsageError("a tensor of " + std::string(name_of(spec.meta().dtype())) +
                   " cannot be sent as " + std::string(name_of(dtype_of(wire))))
      .fact("spec", to_string(spec))
      .hint("choose a wire type of the same kind: whole, real or complex numbers");
}

// "tegula::redistribute f32[8, 6] on (tp=2) as [S(0)] to [R]"
std::string profiled_name(const Plan& plan) {
  return "tegula::redistribute " + to_string(plan.from) + " to " + to_string(plan.to.placements());
}

bool fills_its_storage(const at::Tensor& tensor) {
  return tensor.storage().nbytes() == tensor.nbytes();
}

at::Tensor new_dense(const Shape& shape, const Shape& stride, at::ScalarType type,
                     at::Device device) {
  if (device.is_cpu()) return at::Tensor(at::detail::empty_strided_cpu(shape, stride, type));
  return at::empty_strided(shape, stride, at::device(device).dtype(type));
}

}  // namespace

class Route::Ready {
 public:
  Ready(const World& world, std::shared_ptr<const Plan> plan, std::optional<at::ScalarType> wire)
      : plan_(std::move(plan)), wire_(wire), type_(scalar_type_of(plan_->to.meta().dtype())) {
    if (wire_) check_wire(*wire_, plan_->to);
    const std::optional<Coordinate> coordinate = plan_->to.mesh().coordinate_of(world.rank());
    if (!coordinate || plan_->from == plan_->to) return;
    is_idle_ = false;
    coordinate_ = *coordinate;
    old_shape_ = local_shape(plan_->from, coordinate_);
    shape_ = local_shape(plan_->to, coordinate_);
    stride_ = tile_stride(plan_->to, coordinate_);
    for (const Step& step : plan_->steps) {
      const TileStep mine = step_at(step.before, step.after, coordinate_);
      legs_.push_back({mine, group_along(world, plan_->to.mesh(), mine)});
      if (legs_.back().group) last_call_ = legs_.size() - 1;
    }
  }

  const Plan& plan() const { return *plan_; }
  // This rank's tile stays as it is.
  bool is_idle() const { return is_idle_; }
  bool has_call() const { return last_call_.has_value(); }

  void check(const at::Tensor& tile) const {
    if (tile.defined() && tile.sizes() == old_shape_ && tile.scalar_type() == type_) return;
    check_tile(tile, plan_->from, coordinate_);
  }

  at::Tensor run(const at::Tensor& tile) const { return laid_out(go(tile, 0, legs_.size()), tile); }

  Pending start(const at::Tensor& tile) const {
    const Leg& leg = legs_[*last_call_];
    return begin(*leg.group, for_wire(go(tile, 0, *last_call_)), leg.step);
  }

  // From what the last call gave to the end of the route.
  at::Tensor arrive(const at::Tensor& received, const at::Tensor& origin) const {
    return laid_out(go(finish(received, legs_[*last_call_].step), *last_call_ + 1, legs_.size()),
                    origin);
  }

 private:
  struct Leg {
    TileStep step;
    std::optional<Group> group;  // none: the step stays on its rank
  };

  at::Tensor go(at::Tensor tile, std::size_t first, std::size_t end) const {
    for (std::size_t i = first; i < end; ++i) {
      const Leg& leg = legs_[i];
      tile = leg.group ? carry_out(*leg.group, for_wire(tile), leg.step)
                       : carry_out_alone(tile, leg.step);
    }
    return tile;
  }

  at::Tensor for_wire(const at::Tensor& tile) const { return wire_ ? tile.to(*wire_) : tile; }

  // The tensor as the last tile: its strides and element type, and memory that is neither the
  // origin's nor a part of something larger.
  at::Tensor laid_out(const at::Tensor& tensor, const at::Tensor& origin) const {
    const bool is_apart = fills_its_storage(tensor) && !tensor.is_alias_of(origin);
    if (is_apart && tensor.scalar_type() == type_ && lies_as(tensor, stride_)) {
      return tensor.strides() == stride_ ? tensor : tensor.as_strided(tensor.sizes(), stride_);
    }
    return new_dense(shape_, stride_, type_, tensor.device()).copy_(tensor);
  }

  std::shared_ptr<const Plan> plan_;
  std::optional<at::ScalarType> wire_;
  at::ScalarType type_;
  bool is_idle_ = true;
  Coordinate coordinate_;
  Shape old_shape_;
  Shape shape_;
  Shape stride_;
  std::vector<Leg> legs_;
  std::optional<std::size_t> last_call_;
};

Route::Route(const World& world, const DTensorSpec& from, const DTensorSpec& to,
             const RouteOptions& options)
    : Route(world, world.part<RedistributePlanner>().plan(from, to, {options.memory_cap}),
            options.wire) {}

Route::Route(const World& world, std::shared_ptr<const Plan> plan,
             std::optional<at::ScalarType> wire)
    : ready_(std::make_shared<const Ready>(world, std::move(plan), wire)) {}

const Plan& Route::plan() const { return ready_->plan(); }

bool Route::communicates() const {
  const std::vector<Step>& steps = plan().steps;
  return std::any_of(steps.begin(), steps.end(),
                     [](const Step& step) { return tegula::communicates(step.kind); });
}

at::Tensor Route::run(const at::Tensor& tile) const {
  if (ready_->is_idle()) return tile;
  ready_->check(tile);
  const Profiled event([this] { return profiled_name(plan()); });
  const at::AutoDispatchBelowADInplaceOrView plain;
  return ready_->run(tile);
}

AsyncTile Route::start(const at::Tensor& tile) const {
  if (ready_->is_idle() || !ready_->has_call()) return AsyncTile(run(tile));
  ready_->check(tile);
  const Profiled event([this] { return profiled_name(plan()); });
  const at::AutoDispatchBelowADInplaceOrView plain;
  return AsyncTile(ready_->start(tile), [ready = ready_, tile](const at::Tensor& received) {
    const at::AutoDispatchBelowADInplaceOrView still_plain;
    return ready->arrive(received, tile);
  });
}

}  // namespace tegula::inner

// The idea: plan all steps first (arithmetic), then take them one after the other. Between steps a
// tile keeps whatever strides it has and may be a view; only the end is laid out.
#include "tegula/dispatch/redistribute_tile.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <mutex>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/dispatch/carry_out.h"
#include "tegula/dispatch/tile_layout.h"
#include "tegula/plan/redistribute_planner.h"

namespace tegula {

struct TileLater::State {
  std::mutex mutex;
  std::optional<Pending> call;  // none once the tile is here
  std::function<at::Tensor(const at::Tensor&)> finish;
  at::Tensor tile;
};

TileLater::TileLater(at::Tensor tile) : state_(std::make_shared<State>()) {
  state_->tile = std::move(tile);
}

TileLater::TileLater(Pending call, std::function<at::Tensor(const at::Tensor&)> finish)
    : state_(std::make_shared<State>()) {
  state_->call = std::move(call);
  state_->finish = std::move(finish);
}

at::Tensor TileLater::wait() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->call) {
    state_->tile = state_->finish(state_->call->wait());
    state_->call.reset();
    state_->finish = nullptr;
  }
  return state_->tile;
}

bool TileLater::is_done() const {
  const std::unique_lock<std::mutex> lock(state_->mutex, std::try_to_lock);
  if (!lock) return false;  // somebody waits
  return !state_->call || state_->call->is_done();
}

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

// The steps of one rank from one spec to another.
class Route {
 public:
  Route(const World& world, const Coordinate& coordinate, const DTensorSpec& from,
        const DTensorSpec& to, std::optional<at::ScalarType> wire)
      : world_(world), coordinate_(coordinate), to_(to), wire_(wire) {
    const std::shared_ptr<const Plan> plan = world.part<RedistributePlanner>().plan(from, to);
    for (const Step& step : plan->steps) {
      steps_.push_back(step_at(step.before, step.after, coordinate));
    }
  }

  std::size_t length() const { return steps_.size(); }
  // length() if nothing is sent.
  std::size_t last_call() const {
    for (std::size_t step = steps_.size(); step-- > 0;) {
      if (communicates(steps_[step])) return step;
    }
    return steps_.size();
  }

  at::Tensor go(at::Tensor tile, std::size_t begin, std::size_t end) const {
    for (std::size_t step = begin; step < end; ++step) {
      tile = carry_out(world_, to_.mesh(), for_wire(tile, step), steps_[step]);
    }
    return tile;
  }

  Pending start(const at::Tensor& tile, std::size_t step) const {
    return begin(world_, to_.mesh(), for_wire(tile, step), steps_[step]);
  }

  // From what the call of a step gave to the end of the route.
  at::Tensor arrive(const at::Tensor& received, std::size_t step, const at::Tensor& origin) const {
    return lay_out(go(finish(received, steps_[step]), step + 1, length()), origin);
  }

  at::Tensor lay_out(const at::Tensor& tile, const at::Tensor& origin) const {
    return laid_out(tile, to_, coordinate_, origin);
  }

 private:
  at::Tensor for_wire(const at::Tensor& tile, std::size_t step) const {
    return wire_ && communicates(steps_[step]) ? tile.to(*wire_) : tile;
  }

  World world_;
  Coordinate coordinate_;
  DTensorSpec to_;
  std::optional<at::ScalarType> wire_;
  std::vector<TileStep> steps_;
};

// None for a rank that has nothing to do.
std::optional<Route> route_of(const World& world, const at::Tensor& tile, const DTensorSpec& from,
                              const DTensorSpec& to, std::optional<at::ScalarType> wire) {
  if (wire) check_wire(*wire, to);
  const std::optional<Coordinate> coordinate = from.mesh().coordinate_of(world.rank());
  if (from == to || !coordinate) return std::nullopt;
  check_tile(tile, from, *coordinate);
  return Route(world, *coordinate, from, to, wire);
}

}  // namespace

at::Tensor redistribute_tile(const World& world, const at::Tensor& tile, const DTensorSpec& from,
                             const DTensorSpec& to, std::optional<at::ScalarType> wire) {
  const std::optional<Route> route = route_of(world, tile, from, to, wire);
  if (!route) return tile;
  const at::AutoDispatchBelowADInplaceOrView plain;
  return route->lay_out(route->go(tile, 0, route->length()), tile);
}

TileLater redistribute_tile_later(const World& world, const at::Tensor& tile,
                                  const DTensorSpec& from, const DTensorSpec& to,
                                  std::optional<at::ScalarType> wire) {
  const std::optional<Route> route = route_of(world, tile, from, to, wire);
  if (!route) return TileLater(tile);
  const at::AutoDispatchBelowADInplaceOrView plain;
  const std::size_t call = route->last_call();
  if (call == route->length()) {
    return TileLater(route->lay_out(route->go(tile, 0, call), tile));
  }
  return TileLater(route->start(route->go(tile, 0, call), call),
                   [route = *route, call, tile](const at::Tensor& received) {
                     const at::AutoDispatchBelowADInplaceOrView still_plain;
                     return route.arrive(received, call, tile);
                   });
}

}  // namespace tegula

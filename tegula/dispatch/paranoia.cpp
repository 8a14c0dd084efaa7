// The idea: a 64-bit hash of each tile's bytes travels along each axis over which the tile is
// replicated. Cost: one small all-gather per operand and axis, and reading the tile once.
#include "tegula/dispatch/paranoia.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "tegula/base/error.h"
#include "tegula/base/hash.h"
#include "tegula/base/text.h"
#include "tegula/comm/comm_log.h"
#include "tegula/dispatch/universal.h"
#include "tegula/dispatch/views.h"
#include "tegula/payload/local_call.h"

namespace tegula::inner {
namespace {

constexpr const char* kLabel = "TEGULA_CHECK";

// Per rank, so that ranks which run as threads count for themselves.
struct Sampling {
  Sampling() {
    if (const char* text = std::getenv("TEGULA_CHECK")) share = std::atof(text);
  }
  // Spreads the checked ops evenly. After a recovery all ranks begin anew.
  bool is_due(std::uint32_t epoch) {
    if (share <= 0) return false;
    if (epoch != std::exchange(epoch_seen, epoch)) debt = 0;
    debt += share;
    if (debt < 1) return false;
    debt -= 1;
    return true;
  }
  double share = 0;
  double debt = 0;
  std::uint32_t epoch_seen = 0;
  bool is_on_this_op = false;
};

std::int64_t hash_of_bytes(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.resolve_conj().resolve_neg().contiguous();
  const std::string_view bytes(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
  return static_cast<std::int64_t>(std::hash<std::string_view>()(bytes));
}

void compare_along(const World& world, const std::string& op, const at::Tensor& tile,
                   const std::string& what, const DeviceMesh& mesh, std::size_t axis) {
  const std::string& name = mesh.axes()[axis].name;
  if (mesh.axes()[axis].size == 1) return;
  const Group group = world.group(mesh, name);
  const at::Tensor hashes =
      group.all_gather(at::full({1}, hash_of_bytes(tile), at::TensorOptions(at::kLong)), 0);
  std::vector<std::int64_t> differing;
  for (int member = 1; member < group.size(); ++member) {
    if (hashes[member].item<std::int64_t>() != hashes[0].item<std::int64_t>()) {
      differing.push_back(group.ranks()[static_cast<std::size_t>(member)]);
    }
  }
  if (differing.empty()) return;
  throw UsageError("ranks hold different values of what should be the same on all of them")
      .fact("op", op)
      .fact("tensor", what)
      .fact("axis", name)
      .fact("ranks", bracketed(differing) + " differ from rank " + std::to_string(group.ranks()[0]))
      .hint("look for a rank that draws its own random numbers or reads other data");
}

void compare_replicas(const World& world, const std::string& op, const at::Tensor& tile,
                      const DTensorSpec& spec) {
  for (std::size_t axis = 0; axis < spec.mesh().ndim(); ++axis) {
    if (!is_replicate(spec.placements()[axis])) continue;
    compare_along(world, op, tile, to_string(spec), spec.mesh(), axis);
  }
}

// A tensor on a part of the call's mesh counts as the same in all fibers of that part.
void compare_fibers(const Call& call, const Payload& payload) {
  const World& world = call.world();
  const DeviceMesh& part = payload.spec().mesh();
  const std::vector<std::int64_t> ranks = call.mesh().ranks(*call.mesh().fiber_of(world.rank()));
  const Group group = world.group({ranks.begin(), ranks.end()}, {kLabel, "", std::nullopt});
  const at::Tensor hashes = group.all_gather(
      at::full({1}, hash_of_bytes(payload.tile()), at::TensorOptions(at::kLong)), 0);
  std::map<Coordinate, std::int64_t> hash_at;
  std::vector<std::int64_t> differing;
  for (std::size_t member = 0; member < ranks.size(); ++member) {
    const auto hash = hashes[static_cast<std::int64_t>(member)].item<std::int64_t>();
    const auto first = hash_at.try_emplace(*part.coordinate_of(ranks[member]), hash).first;
    if (first->second != hash) differing.push_back(ranks[member]);
  }
  if (differing.empty()) return;
  throw UsageError("fibers hold different values of what should be the same in all of them")
      .fact("op", call.text())
      .fact("tensor", to_string(payload.spec()))
      .fact("beside", to_string(call.mesh()))
      .fact("ranks", bracketed(differing) + " differ from the first fiber")
      .hint("a tensor on a slice of a mesh counts as replicated over the rest of it");
}

}  // namespace

void check_replicas(const std::string& what, const at::Tensor& tile, const DTensorSpec& spec,
                    const World& world) {
  const BelowAutograd below;
  const CommLabel label(kLabel, CommLabel::Reach::OverInnerLabels);
  compare_replicas(world, what, tile.detach(), spec);
}

bool is_checking(const World& world) { return world.part<Sampling>().share > 0; }

void check_replicas(const Call& call) {
  Sampling& sampling = call.world().part<Sampling>();
  sampling.is_on_this_op = sampling.is_due(call.world().epoch());
  // a view reads nothing: its tensor may hold nothing yet
  if (!sampling.is_on_this_op || call.facts().viewed) return;
  if (!call.coordinate()) return;
  const BelowAutograd below;
  const CommLabel label(kLabel, CommLabel::Reach::OverInnerLabels);
  for (const TensorPlace& place : call.tensors()) {
    if (!place.tensor.defined()) continue;
    // what is written may hold nothing yet; if it does, its next reader is checked
    if (call.facts().written[place.argument]) continue;
    if (!place.payload) {
      for (std::size_t axis = 0; axis < call.mesh().ndim(); ++axis) {
        compare_along(call.world(), call.text(), place.tensor, described(place.tensor), call.mesh(),
                      axis);
      }
      continue;
    }
    const DTensorSpec& spec = place.payload->spec();
    if (place.payload->link()) continue;
    compare_replicas(call.world(), call.text(), place.payload->tile(), spec);
    if (!(spec.mesh() == call.mesh())) compare_fibers(call, *place.payload);
  }
}

namespace {

// DTensors with the same values and specs, apart from the originals.
class Copies {
 public:
  at::Tensor of(const at::Tensor& tensor) {
    const PayloadPtr payload = payload_of(tensor);
    if (!payload) return tensor;
    share_ = share_ || payload->link() != nullptr;
    if (payload->link()) return tensor;
    const at::Tensor tile = payload->tile();
    share_ = !seen_.insert(tile.storage().unsafeGetStorageImpl()).second || share_;
    return outer_tensor(tile.clone(), payload->spec(), payload->world(), payload->layout());
  }
  // Whether originals share memory, as the copies do not, or are views of others; the same on all
  // ranks.
  bool originals_share() const { return share_; }

 private:
  std::set<const c10::StorageImpl*> seen_;
  bool share_ = false;
};

double greatest_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  const at::Tensor sizes = tensor.abs().to(at::kDouble);
  return sizes.masked_fill(at::isfinite(sizes).logical_not(), 0).max().item<double>();
}

// Of all parts that a sum is owed of.
double greatest_part(const Payload& payload) {
  at::Tensor greatest = at::full({1}, greatest_of(payload.resolved_tile()), at::kDouble);
  const DeviceMesh& mesh = payload.spec().mesh();
  for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
    if (mesh.axes()[axis].size == 1) continue;
    greatest = payload.world().group(mesh, axis).all_reduce(greatest, ReduceOp::Max);
  }
  return greatest.item<double>();
}

bool has_rounding(const at::Tensor& tensor) {
  return at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
}

WholeResult whole_of(const at::Tensor& tensor) {
  const PayloadPtr payload = payload_of(tensor);
  if (!payload) return {tensor, 0, false};
  const bool owes = payload->spec().is_partial() && !payload->link() && has_rounding(tensor);
  return {payload->whole().resolve_conj().resolve_neg().clone(), owes ? greatest_part(*payload) : 0,
          owes};
}

void collect_wholes(const c10::IValue& value, std::vector<WholeResult>& into) {
  with_tensors(value, [&](int, const at::Tensor& tensor) {
    into.push_back(whole_of(tensor));
    return tensor;
  });
}

// By the least exact of a call's tensors: what a rule adds up as floats, the universal path rounds
// before.
double tolerance_of(const Call& call, const at::Tensor& result) {
  bool is_short = result.element_size() < 4;
  for (const TensorPlace& place : call.tensors()) {
    if (!place.tensor.defined() || !has_rounding(place.tensor)) continue;
    is_short = is_short || place.tensor.element_size() < 4;
  }
  if (is_short) return 5e-2;
  const bool is_double =
      result.scalar_type() == at::kDouble || result.scalar_type() == at::kComplexDouble;
  return is_double ? 1e-9 : 2e-4;
}

// Relative to the greatest element, since sums are rounded otherwise; if the parts of a sum may
// have cancelled each other, to the greatest of them and of what they were made of. Parts that are
// not finite (x / 0) do not add up to what their sum would give.
bool are_close(const WholeResult& got, const at::Tensor& expected, const Call& call,
               double greatest_operand) {
  const at::Tensor& a = got.whole;
  if (a.sizes() != expected.sizes() || a.scalar_type() != expected.scalar_type()) return false;
  if (!has_rounding(a)) return at::equal(a, expected);
  const double tolerance = tolerance_of(call, a);
  double greatest = greatest_of(a);
  if (got.owes) greatest = std::max({greatest, got.greatest_part, greatest_operand});
  at::Tensor is_close =
      at::isclose(a, expected, tolerance, tolerance * greatest + 1e-30, /*equal_nan=*/true);
  if (got.owes) {
    is_close =
        at::logical_or(is_close, at::isfinite(a).logical_and(at::isfinite(expected)).logical_not());
  }
  return is_close.all().item<bool>();
}

}  // namespace

Witness::Witness(const Call& call) : call_(call) {
  is_due_ = call.world().part<Sampling>().is_on_this_op && call.coordinate().has_value();
  if (!is_due_) return;
  const BelowAutograd below;
  const CommLabel label(kLabel, CommLabel::Reach::OverInnerLabels);
  Copies copies;
  std::vector<c10::IValue> arguments;
  for (std::size_t index = 0; index < call.arguments().size(); ++index) {
    const c10::IValue& argument = call.arguments()[index];
    arguments.push_back(
        call.facts().written[index]
            ? with_tensors(argument, [&](int, const at::Tensor& t) { return copies.of(t); })
            : argument);
  }
  is_due_ = !copies.originals_share();
  if (!is_due_) return;
  for (const TensorPlace& place : call.tensors()) {
    if (!place.tensor.defined() || !has_rounding(place.tensor)) continue;
    greatest_operand_ = std::max(greatest_operand_, greatest_of(whole_of(place.tensor).whole));
  }
  const Call apart(call.entry(), arguments);
  for (const c10::IValue& result : run_universal(apart)) collect_wholes(result, expected_);
  for (std::size_t index = 0; index < arguments.size(); ++index) {
    if (call.facts().written[index]) collect_wholes(arguments[index], expected_);
  }
}

void Witness::compare(const torch::jit::Stack& stack) const {
  if (!is_due_) return;
  const BelowAutograd below;
  const CommLabel label(kLabel, CommLabel::Reach::OverInnerLabels);
  std::vector<WholeResult> got;
  const std::size_t count = call_.facts().return_is.size();
  for (std::size_t index = stack.size() - count; index < stack.size(); ++index) {
    collect_wholes(stack[index], got);
  }
  for (std::size_t index = 0; index < call_.arguments().size(); ++index) {
    if (call_.facts().written[index]) collect_wholes(call_.arguments()[index], got);
  }
  for (std::size_t k = 0; k < got.size(); ++k) {
    if (!got[k].whole.defined() ||
        are_close(got[k], expected_[k].whole, call_, greatest_operand_)) {
      continue;
    }
    throw InternalError("a rule gives another result than the universal path")
        .fact("op", call_.text())
        .fact("result", std::to_string(k))
        .hint("please report this");
  }
}

namespace {

bool are_equal(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (!has_rounding(a)) return at::equal(a, b);
  return at::eq(a, b).logical_or(at::isnan(a).logical_and(at::isnan(b))).all().item<bool>();
}

}  // namespace

void check_views(const Call& call, const std::vector<c10::IValue>& results) {
  if (!call.world().part<Sampling>().is_on_this_op || !call.coordinate()) return;
  const BelowAutograd below;
  const CommLabel label(kLabel, CommLabel::Reach::OverInnerLabels);
  const PayloadPtr base = payload_of(call.arguments()[*call.facts().viewed].toTensor());
  if (base->link()) return;  // so are its views: made of the whole each time
  const double greatest = base->spec().is_partial() ? greatest_part(*base) : 0;
  std::vector<at::Tensor> expected;
  with_tensors(plain_views(call, base->whole()), [&](int, const at::Tensor& view) {
    expected.push_back(view.resolve_conj().resolve_neg());
    return view;
  });
  std::size_t count = 0;
  with_tensors(results.front(), [&](int, const at::Tensor& view) {
    const at::Tensor& want = expected[count++];
    if (payload_in(view)->link()) return view;
    const WholeResult got = whole_of(view);
    if (got.owes ? are_close(got, want, call, greatest) : are_equal(got.whole, want)) return view;
    throw InternalError("a view of tiles is not the view of the whole")
        .fact("op", call.text())
        .fact("view", to_string(payload_in(view)->spec()))
        .hint("please report this");
  });
}

}  // namespace tegula::inner

// Batch norm. Channels are normalized by themselves, so a cut of the channels needs no exchange.
// Where the batch or space is cut, training needs the mean and the variance of all ranks together:
// synchronised batch norm.
//
// Forward: each rank gives its mean and variance, [2, channels], in one all-gather; all combine
// them in the same order, and so keep the same running statistics. The means are subtracted before
// anything is squared: no digits cancel. Backward: one all-reduce of two sums, [2, channels].
#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/families.h"
#include "tegula/families/image_place.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"
#include "tegula/redistribute/redistribute_tile.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/spec/slices.h"

namespace tegula::inner::families {
namespace {

at::Tensor optional_tensor(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

// Statistics ----------------------------------------------------------------------------------

struct Statistics {
  at::Tensor mean, variance;  // of this rank's channels, f64
};

// [2, channels]; zeros of nothing.
at::Tensor statistics_here(const at::Tensor& tile, at::ScalarType type) {
  if (tile.numel() == 0) {
    return at::zeros({2, tile.size(kChannels)}, at::TensorOptions(type));
  }
  const auto [mean, variance] = at::batch_norm_update_stats(tile.to(type), {}, {}, 0);
  return at::stack({mean, variance});
}

Statistics statistics_of(const at::Tensor& tile, const ImagePlace& place) {
  const at::ScalarType type = sum_type(tile.scalar_type());
  at::Tensor parts = statistics_here(tile, type).unsqueeze(0);
  const std::vector<double> counts = place.counts();
  if (!axes_beside_channels(place.image()).empty()) {
    const Shape shape{static_cast<std::int64_t>(counts.size()), 2,
                      place.image().shape()[kChannels]};
    parts =
        redistribute_tile(place.world(), parts, channels_spec(place.image(), shape, type, Shard(0)),
                          channels_spec(place.image(), shape, type, Replicate()));
  }
  const at::Tensor shares = at::tensor(counts, at::kDouble).div_(place.count()).unsqueeze(1);
  const at::Tensor means = parts.select(1, 0).to(at::kDouble);
  const at::Tensor variances = parts.select(1, 1).to(at::kDouble);
  const at::Tensor mean = at::sum(means * shares, 0);
  return {mean, at::sum((variances + at::square(means - mean)) * shares, 0)};
}

// Moves a running statistic towards that of this batch.
void update(const at::Tensor& running, const at::Tensor& now, double momentum,
            const ImagePlace& place) {
  if (!running.defined()) return;
  const at::Tensor placed = place.wrapped_channels(now, running.scalar_type());
  const PayloadPtr payload = payload_of(running);
  running.mul_(1 - momentum).add_(payload ? placed : payload_of(placed)->whole(), momentum);
}

// Forward -------------------------------------------------------------------------------------

struct BatchNorm {
  at::Tensor input, weight, bias, running_mean, running_var;
  bool is_training = false;
  double momentum = 0;
  double eps = 0;
};

// Of weights, running statistics and what is saved: that of the input, or float beside halves.
at::ScalarType parameter_type(const BatchNorm& norm) {
  for (const at::Tensor* one : {&norm.weight, &norm.bias, &norm.running_mean, &norm.running_var}) {
    if (one->defined()) return one->scalar_type();
  }
  return norm.input.scalar_type();
}

// The image with its channels cut as one of these is, if that takes no more than slices of it.
DTensorSpec sliced_as(const std::vector<at::Tensor>& channels, const DTensorSpec& image) {
  if (image.dim_cuts()[kChannels].is_cut()) return image;
  for (const at::Tensor& one : channels) {
    const Payload* payload = one.defined() ? payload_in(one) : nullptr;
    if (!payload || !payload->spec().is_sharded() || payload->spec().is_partial()) continue;
    Placements placements = image.placements();
    ShardOrder order = image.shard_order();
    bool is_sliced = true;
    ShardOrderEntry entry{kChannels, {}};
    for (const CutAxis& cut : payload->spec().dim_cuts()[0].axes()) {
      is_sliced = is_sliced && !as_shard(placements[cut.axis]);
      placements[cut.axis] = Shard(kChannels, cut.cut);
      entry.axes.push_back(cut.axis);
    }
    if (!is_sliced) continue;
    order.push_back(std::move(entry));
    std::sort(order.begin(), order.end(),
              [](const auto& a, const auto& b) { return a.dim < b.dim; });
    return {image.mesh(), placements, order, image.meta()};
  }
  return image;
}

Values run(const BatchNorm& norm) {
  const PayloadPtr payload = payload_of(norm.input);
  const DTensorSpec image = with_reductions_done(payload->spec());
  const ImagePlace place(
      norm.is_training ? image : sliced_as({norm.running_mean, norm.running_var}, image),
      payload->world());
  const ImagePlace results(sliced_as({norm.weight, norm.bias}, place.image()), payload->world());
  const at::ScalarType type = sum_type(norm.input.scalar_type());
  at::Tensor tile, mean, variance, output;
  if (place.is_here()) {
    tile = place.image_tile(norm.input);
    if (norm.is_training) {
      const Statistics statistics = statistics_of(tile, place);
      mean = statistics.mean;
      variance = statistics.variance;
    } else {
      mean = place.channels_tile(norm.running_mean, type);
      variance = place.channels_tile(norm.running_var, type);
    }
    const auto of_results = [&](const at::Tensor& channels) {
      return results.channels_tile(place.wrapped_channels(channels, type), type);
    };
    const at::Tensor weight = results.channels_tile(norm.weight, type);
    const at::Tensor bias = results.channels_tile(norm.bias, type);
    const at::Tensor here =
        results.image() == place.image() ? tile : results.image_tile(norm.input);
    output = here.numel() == 0
                 ? here
                 : std::get<0>(at::native_batch_norm(here, weight, bias, of_results(mean),
                                                     of_results(variance), false, 0, norm.eps));
  }
  const at::Tensor normalized = results.wrapped_image(output, norm.input);
  const at::ScalarType saved = parameter_type(norm);
  if (!norm.is_training) return {normalized, place.nothing(saved), place.nothing(saved)};
  const double count = place.count();
  at::Tensor unbiased, deviation;
  if (place.is_here()) {
    unbiased = variance * (count / (count - 1));
    deviation = at::rsqrt(variance + norm.eps);
  }
  update(norm.running_mean, mean, norm.momentum, place);
  update(norm.running_var, unbiased, norm.momentum, place);
  return {normalized, place.wrapped_channels(mean, saved),
          place.wrapped_channels(deviation, saved)};
}

// Forms -----------------------------------------------------------------------------------------

// Where arguments stand in a form of batch norm.
constexpr int kNone = -1;
constexpr int kAlways = -2;
constexpr int kNever = -3;

struct ArgumentPlaces {
  int running_mean, running_var, training, momentum;  // eps follows
  bool has_reserve;
};

constexpr ArgumentPlaces kOlder{3, 4, 5, 6, false};
constexpr ArgumentPlaces kWithoutStatistics{kNone, kNone, 3, 4, false};
constexpr ArgumentPlaces kWithUpdate{3, 4, kAlways, 5, true};
constexpr ArgumentPlaces kNoUpdate{3, 4, kNever, 5, true};
constexpr ArgumentPlaces kNoTraining{3, 4, kNever, 5, false};

BatchNorm batch_norm_at(Arguments a, const ArgumentPlaces& form) {
  const auto at = [&](int index) -> const c10::IValue& {
    return a[static_cast<std::size_t>(index)];
  };
  const auto statistic = [&](int index) {
    return index == kNone ? at::Tensor() : optional_tensor(at(index));
  };
  return {at(0).toTensor(),
          optional_tensor(at(1)),
          optional_tensor(at(2)),
          statistic(form.running_mean),
          statistic(form.running_var),
          form.training == kAlways || (form.training >= 0 && at(form.training).toBool()),
          at(form.momentum).toDouble(),
          at(form.momentum + 1).toDouble()};
}

// An image of floating numbers that holds values on tiles.
bool is_image(const at::Tensor& tensor) {
  const Payload* payload = payload_in(tensor);
  return payload && !payload->link() && tensor.dim() >= 2 && tensor.numel() > 0 &&
         at::isFloatingType(tensor.scalar_type());
}

// Numbers of the image's channels, of one type with it or float beside a half; or undefined.
bool fits(const at::Tensor& channels, const at::Tensor& image, at::ScalarType type) {
  if (!channels.defined()) return true;
  const Payload* payload = payload_in(channels);
  if (payload && (payload->link() || payload->spec().mesh() != payload_in(image)->spec().mesh())) {
    return false;
  }
  return channels.dim() == 1 && channels.numel() == image.size(kChannels) &&
         channels.scalar_type() == type;
}

bool can_run(const BatchNorm& norm) {
  if (!is_image(norm.input)) return false;
  const at::ScalarType own = norm.input.scalar_type();
  const at::ScalarType type = parameter_type(norm);
  if (type != own && type != sum_type(own)) return false;
  for (const at::Tensor* one : {&norm.weight, &norm.bias, &norm.running_mean, &norm.running_var}) {
    if (!fits(*one, norm.input, type)) return false;
  }
  return norm.is_training || (norm.running_mean.defined() && norm.running_var.defined());
}

// Fixed statistics -------------------------------------------------------------------------------

at::Tensor own_tile(const at::Tensor& tensor) {
  const Payload* payload = payload_in(tensor);
  return payload ? payload->tile() : tensor;
}

bool lies_beside(const at::Tensor& channels, const DTensorSpec& image) {
  if (!channels.defined()) return true;
  const Payload* payload = payload_in(channels);
  return payload && payload->spec() == spec_of_channels(image, channels.scalar_type());
}

// Whether every rank has what its tile of the image needs.
bool is_all_here(const BatchNorm& norm) {
  const Payload* payload = payload_in(norm.input);
  const DTensorSpec& image = payload->spec();
  if (!payload->coordinate() || image.is_partial()) return false;
  if (payload->tile().numel() == 0) return false;  // libtorch refuses it
  for (const at::Tensor* one : {&norm.weight, &norm.bias, &norm.running_mean, &norm.running_var}) {
    if (!lies_beside(*one, image)) return false;
  }
  return true;
}

// Each rank normalizes its own tile. What the results are is worked out once.
template <const ArgumentPlaces& form>
Recipe make_with_fixed_statistics(const BatchNorm& norm) {
  const Payload* payload = payload_in(norm.input);
  const ImagePlace place(payload->spec(), payload->world());
  const at::Tensor like_output = place.wrapped_image(own_tile(norm.input), norm.input);
  const DTensorSpec output = payload_in(like_output)->spec();
  const DTensorSpec nothing = payload_in(place.nothing(parameter_type(norm)))->spec();
  const Coordinate at = *payload->coordinate();
  return [output, nothing, at, stride = tile_stride(output, at)](Arguments a) -> Values {
    const BatchNorm now = batch_norm_at(a, form);
    const World& world = payload_in(now.input)->world();
    auto [tile, mean, deviation] = at::native_batch_norm(
        own_tile(now.input), own_tile(now.weight), own_tile(now.bias), own_tile(now.running_mean),
        own_tile(now.running_var), false, now.momentum, now.eps);
    if (!lies_as(tile, stride)) tile = in_tile_layout(tile, output, at);
    Values results;
    results.reserve(4);
    results.emplace_back(outer_tensor(std::move(tile), output, world));
    results.emplace_back(outer_tensor(std::move(mean), nothing, world));
    results.emplace_back(outer_tensor(std::move(deviation), nothing, world));
    if (form.has_reserve) {
      results.emplace_back(ImagePlace(output, world).nothing(at::kByte));
    }
    return results;
  };
}

template <const ArgumentPlaces& form>
Recipe make_batch_norm(const Call& call) {
  const BatchNorm given = batch_norm_at(call.arguments(), form);
  if (!can_run(given)) return nullptr;
  if (!given.is_training && is_all_here(given)) return make_with_fixed_statistics<form>(given);
  return [](Arguments a) {
    const BatchNorm norm = batch_norm_at(a, form);
    Values results = run(norm);
    if (form.has_reserve) {
      const PayloadPtr payload = payload_of(norm.input);
      results.emplace_back(
          ImagePlace(with_reductions_done(payload->spec()), payload->world()).nothing(at::kByte));
    }
    return results;
  };
}

// The running statistics are results, too: copies of what is given.
template <const ArgumentPlaces& form>
Recipe make_functional(const Call& call) {
  const Recipe plain = make_batch_norm<form>(call);
  for (const int index : {form.running_mean, form.running_var}) {
    const c10::IValue& running = call.arguments()[static_cast<std::size_t>(index)];
    if (!plain || !payload_in(running.toTensor())) return nullptr;
  }
  return [plain](Arguments a) {
    Values arguments(a.begin(), a.end());
    for (const int index : {form.running_mean, form.running_var}) {
      c10::IValue& running = arguments[static_cast<std::size_t>(index)];
      running = running.toTensor().clone();
    }
    Values results = plain(arguments);
    for (const int index : {form.running_mean, form.running_var}) {
      results.push_back(arguments[static_cast<std::size_t>(index)]);
    }
    return results;
  };
}

// Whether a tensor can take the k-th result as it is.
bool can_take(const at::Tensor& out, std::size_t k, const BatchNorm& norm) {
  const Payload* payload = payload_in(out);
  if (!payload || payload->link()) return false;
  if (k == 0) {
    return out.sizes() == norm.input.sizes() && out.scalar_type() == norm.input.scalar_type();
  }
  const bool is_reserve = k == 3;
  const std::int64_t size = norm.is_training && !is_reserve ? norm.input.size(kChannels) : 0;
  return out.dim() == 1 && out.numel() == size &&
         out.scalar_type() == (is_reserve ? at::kByte : parameter_type(norm));
}

// Results go to the tensors that are given last.
template <const ArgumentPlaces& form>
Recipe make_out(const Call& call) {
  const Recipe plain = make_batch_norm<form>(call);
  if (!plain) return nullptr;
  const Arguments a = call.arguments();
  const BatchNorm norm = batch_norm_at(a, form);
  constexpr std::size_t first = static_cast<std::size_t>(form.momentum) + 2;
  for (std::size_t index = first; index < a.size(); ++index) {
    if (!can_take(a[index].toTensor(), index - first, norm)) return nullptr;
  }
  return [plain](Arguments arguments) {
    const Values results = plain(arguments);
    const Values out(arguments.begin() + static_cast<std::ptrdiff_t>(first), arguments.end());
    for (std::size_t k = 0; k < out.size(); ++k) out[k].toTensor().copy_(results[k].toTensor());
    return out;
  };
}

// Backward --------------------------------------------------------------------------------------

// (grad, input, weight?, running_mean?, running_var?, mean?, inverse deviation?, train, eps, mask)
struct Gradient {
  at::Tensor grad, input, weight, mean, deviation;
};

Gradient gradient_at(Arguments a) {
  return {a[0].toTensor(), a[1].toTensor(), optional_tensor(a[2]), optional_tensor(a[5]),
          optional_tensor(a[6])};
}

const DTensorSpec& leading_spec(const Gradient& gradient) {
  const DTensorSpec& input = payload_in(gradient.input)->spec();
  return axes_beside_channels(input).empty() ? payload_in(gradient.grad)->spec() : input;
}

Values run_backward(Arguments a) {
  const Gradient gradient = gradient_at(a);
  const c10::List<bool> mask = a[9].toBoolList();
  const ImagePlace place(with_reductions_done(leading_spec(gradient)),
                         payload_in(gradient.input)->world());
  const at::ScalarType type = sum_type(gradient.input.scalar_type());
  const at::ScalarType of_weight =
      gradient.weight.defined() ? gradient.weight.scalar_type() : gradient.input.scalar_type();
  at::Tensor of_input, sum, scaled_sum;
  if (place.is_here()) {
    const at::Tensor grad = place.image_tile(gradient.grad).to(type);
    const at::Tensor mean = place.channels_tile(gradient.mean, type);
    const at::Tensor deviation = place.channels_tile(gradient.deviation, type);
    const at::Tensor centred = place.image_tile(gradient.input).to(type) - place.beside_image(mean);
    const std::vector<std::int64_t> dims = place.dims_beside_channels();
    const at::Tensor parts = at::stack({at::sum(grad, dims), at::sum(grad * centred, dims)});
    const Shape shape{2, place.image().shape()[kChannels]};
    const at::Tensor sums = redistribute_tile(
        place.world(), parts, channels_spec(place.image(), shape, type, Partial()),
        channels_spec(place.image(), shape, type, Replicate()));
    sum = sums[0];
    scaled_sum = sums[1] * deviation;
    if (mask[0]) {
      const double count = place.count();
      const at::Tensor weight = place.channels_tile(gradient.weight, type);
      const at::Tensor slope = weight.defined() ? deviation * weight : deviation;
      of_input = centred.mul_(place.beside_image(scaled_sum * deviation / -count))
                     .add_(grad)
                     .sub_(place.beside_image(sum / count))
                     .mul_(place.beside_image(slope))
                     .to(gradient.input.scalar_type());
    }
  }
  Values results(3, at::Tensor());
  if (mask[0]) results[0] = place.wrapped_image(of_input, gradient.input);
  if (mask[1]) results[1] = place.wrapped_channels(scaled_sum, of_weight);
  if (mask[2]) results[2] = place.wrapped_channels(sum, of_weight);
  return results;
}

// Of statistics that were fixed, and where the channels alone are cut, the rule does it.
Recipe make_backward(const Call& call) {
  const Arguments a = call.arguments();
  const Gradient gradient = gradient_at(a);
  if (!a[7].toBool() || !is_image(gradient.input) || !is_image(gradient.grad)) return nullptr;
  if (!gradient.mean.defined() || !gradient.deviation.defined()) return nullptr;
  const at::ScalarType type = gradient.mean.scalar_type();
  for (const at::Tensor* one : {&gradient.weight, &gradient.mean, &gradient.deviation}) {
    if (!fits(*one, gradient.input, one->defined() ? one->scalar_type() : type)) return nullptr;
  }
  const DTensorSpec& grad = payload_in(gradient.grad)->spec();
  const DTensorSpec& input = payload_in(gradient.input)->spec();
  if (grad.mesh() != input.mesh() || grad.shape() != input.shape()) return nullptr;
  return axes_beside_channels(leading_spec(gradient)).empty() ? nullptr : run_backward;
}

}  // namespace

void batch_norm(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, MakeRecipe> table = {
      {"aten::native_batch_norm", make_batch_norm<kOlder>},
      {"aten::native_batch_norm.out", make_out<kOlder>},
      {"aten::_native_batch_norm_legit", make_batch_norm<kOlder>},
      {"aten::_native_batch_norm_legit.out", make_out<kOlder>},
      {"aten::_native_batch_norm_legit.no_stats", make_batch_norm<kWithoutStatistics>},
      {"aten::_native_batch_norm_legit.no_stats_out", make_out<kWithoutStatistics>},
      {"aten::_native_batch_norm_legit_no_training", make_batch_norm<kNoTraining>},
      {"aten::_native_batch_norm_legit_no_training.out", make_out<kNoTraining>},
      {"aten::_native_batch_norm_legit_functional", make_functional<kOlder>},
      {"aten::_batch_norm_with_update", make_batch_norm<kWithUpdate>},
      {"aten::_batch_norm_with_update.out", make_out<kWithUpdate>},
      {"aten::_batch_norm_with_update_functional", make_functional<kWithUpdate>},
      {"aten::_batch_norm_no_update", make_batch_norm<kNoUpdate>},
      {"aten::_batch_norm_no_update.out", make_out<kNoUpdate>},
      {"aten::native_batch_norm_backward", make_backward},
      {"aten::batch_norm_backward", make_backward},
  };
  const auto found = table.find(toString(op.operator_name()));
  if (found != table.end()) notes.decomposition = found->second;
}

}  // namespace tegula::inner::families

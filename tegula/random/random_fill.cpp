// The idea: a counter-based generator needs no order, so each rank computes the elements of its
// tile from their indices in the whole tensor, run by run (index_runs.h), each from a Philox block
// of its own. The counter is (index, draw number), the key is the seed.
#include "tegula/random/random_fill.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty_strided.h>

#include <atomic>
#include <sstream>

#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/random/index_runs.h"
#include "tegula/random/philox_batch.h"
#include "tegula/random/samplers.h"

namespace tegula::inner {
namespace {

// Where a tile is: its slice of a tensor of this shape.
struct Place {
  const TensorSlice& slice;
  const Shape& whole;
};

// Calls `act` with the C++ type of an element type, as a std::type_identity.
template <class Act>
void with_type_of(at::ScalarType type, const Act& act) {
  switch (type) {
#define TEGULA_CASE(name, T) \
  case at::ScalarType::name: \
    return act(std::type_identity<T>{});
    TEGULA_CASE(Byte, std::uint8_t)
    TEGULA_CASE(Char, std::int8_t)
    TEGULA_CASE(Short, std::int16_t)
    TEGULA_CASE(Int, std::int32_t)
    TEGULA_CASE(Long, std::int64_t)
    TEGULA_CASE(UInt16, std::uint16_t)
    TEGULA_CASE(UInt32, std::uint32_t)
    TEGULA_CASE(UInt64, std::uint64_t)
    TEGULA_CASE(Bool, bool)
    TEGULA_CASE(Half, c10::Half)
    TEGULA_CASE(BFloat16, c10::BFloat16)
    TEGULA_CASE(Float, float)
    TEGULA_CASE(Double, double)
#undef TEGULA_CASE
    default:
      throw UsageError("there are no random numbers of this element type")
          .fact("dtype", c10::toString(type))
          .hint("draw floats, whole numbers or bools; of complex numbers, draw the parts");
  }
}

// Calls set(offset into the tile's memory, bits) for every element of the run from begin to end.
template <class Set>
void set_run(const IndexRun& run, std::int64_t begin, std::int64_t end, const Draw& draw, Set set) {
  const auto step = static_cast<std::uint64_t>(run.index_step);
  for (std::int64_t start = begin; start < end; start += PhiloxBatch::kSize) {
    const auto index = static_cast<std::uint64_t>(run.index + start * run.index_step);
    const std::int64_t offset = run.offset + start * run.offset_step;
    const std::int64_t count = std::min(PhiloxBatch::kSize, end - start);
    if (count < PhiloxBatch::kSize / 4) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::uint64_t at = index + static_cast<std::uint64_t>(i) * step;
        set(offset + i * run.offset_step, random_bits(draw.seed, at, draw.number));
      }
      return;
    }
    const PhiloxBatch batch(draw, index, step);
    if (count == PhiloxBatch::kSize && run.offset_step == 1) {
      for (std::int64_t i = 0; i < PhiloxBatch::kSize; ++i) set(offset + i, batch[i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i) set(offset + i * run.offset_step, batch[i]);
    }
  }
}

template <class Set>
void for_each_element(const at::Tensor& tile, const Place& place, const Draw& draw,
                      const Set& set) {
  constexpr std::int64_t kElementsPerThread = 8192;
  for_each_run(place.slice, place.whole, tile.strides().vec(), [&](const IndexRun& run) {
    at::parallel_for(0, run.count, kElementsPerThread, [&](std::int64_t begin, std::int64_t end) {
      set_run(run, begin, end, draw, set);
    });
  });
}

bool has_nothing_to_fill(const at::Tensor& tile) {
  return !tile.defined() || tile.numel() == 0 || tile.is_meta();
}

void check_memory(const at::Tensor& tile) {
  if (at::has_internal_overlap(tile) != at::MemOverlap::Yes) return;
  throw UsageError("elements that share memory cannot get random numbers of their own")
      .fact("tensor", to_string(meta_of(tile)))
      .hint("clone the tensor first");
}

// Lets `fill` write a tile of any device by way of a CPU tensor with the same strides.
template <class Fill>
void fill_on_cpu(const at::Tensor& tile, const Fill& fill) {
  if (tile.is_cpu()) return fill(tile);
  const at::Tensor host =
      at::empty_strided(tile.sizes(), tile.strides(), tile.options().device(host_device()));
  fill(host);
  tile.detach().copy_(host);
}

template <class T, class D>
void fill_elements(const at::Tensor& tile, const Place& place, const D& distribution,
                   const Draw& draw) {
  const auto sample = sampler_for<T>(distribution);
  if (has_nothing_to_fill(tile)) return;
  fill_on_cpu(tile, [&](const at::Tensor& memory) {
    T* data = static_cast<T*>(memory.data_ptr());
    for_each_element(memory, place, draw, [=](std::int64_t offset, const RandomBits& bits) {
      data[offset] = sample(bits);
    });
  });
}

void fill_as(const at::Tensor& tile, at::ScalarType type, const Place& place,
             const Distribution& distribution, const Draw& draw) {
  with_type_of(type, [&]<class T>(std::type_identity<T>) {
    const auto fill_from = [&]<class D>(const D& from) {
      if constexpr (kIsContinuous<D> && std::is_integral_v<T>) {
        throw UsageError("whole numbers cannot have a continuous distribution")
            .fact("values", to_string(distribution))
            .fact("dtype", c10::toString(type))
            .hint("fill a tensor of floats");
      } else {
        fill_elements<T>(tile, place, from, draw);
      }
    };
    std::visit(fill_from, distribution);
  });
}

// The probabilities with the tile's strides, so that one offset serves both.
at::Tensor aligned(const at::Tensor& probabilities, const at::Tensor& tile) {
  if (!probabilities.defined() || !at::is_expandable_to(probabilities.sizes(), tile.sizes())) {
    throw UsageError("the probabilities do not broadcast to the tile")
        .fact("probabilities",
              probabilities.defined() ? bracketed(probabilities.sizes().vec()) : "undefined")
        .fact("tile", bracketed(tile.sizes().vec()))
        .hint("give one probability per element of the tile");
  }
  const at::Tensor copy = at::empty_strided(tile.sizes(), tile.strides(), at::kDouble);
  copy.copy_(probabilities.detach().expand(tile.sizes()));
  return copy;
}

template <class T>
void toss_elements(const at::Tensor& tile, const Place& place, const at::Tensor& probabilities,
                   const Draw& draw) {
  const at::Tensor copy = aligned(probabilities, tile);
  const double* p = copy.const_data_ptr<double>();
  std::atomic<bool> sensible = true;
  fill_on_cpu(tile, [&](const at::Tensor& memory) {
    T* data = static_cast<T*>(memory.data_ptr());
    for_each_element(memory, place, draw, [&](std::int64_t offset, const RandomBits& bits) {
      if (!(p[offset] >= 0 && p[offset] <= 1)) sensible.store(false, std::memory_order_relaxed);
      data[offset] = static_cast<T>(unit<double>(bits.first) < p[offset] ? 1 : 0);
    });
  });
  if (!sensible) {
    throw UsageError("a probability is outside of [0, 1]")
        .fact("probabilities", to_string(meta_of(probabilities)))
        .hint("clamp them first");
  }
}

void toss(const at::Tensor& tile, const Place& place, const at::Tensor& probabilities,
          const Draw& draw) {
  with_type_of(tile.scalar_type(), [&]<class T>(std::type_identity<T>) {
    toss_elements<T>(tile, place, probabilities, draw);
  });
}

TensorSlice slice_of(const at::Tensor& tile, const DTensorSpec& spec,
                     const Coordinate& coordinate) {
  if (tile.sizes().vec() != local_shape(spec, coordinate) ||
      tile.scalar_type() != scalar_type_of(spec.meta().dtype())) {
    throw UsageError("the tile does not fit its spec")
        .fact("tile", to_string(meta_of(tile)))
        .fact("wanted",
              std::string(name_of(spec.meta().dtype())) + bracketed(local_shape(spec, coordinate)))
        .fact("spec", to_string(spec))
        .hint("check the tile's shape and element type");
  }
  check_memory(tile);
  return slice_at(spec, coordinate);
}

TensorSlice slice_of_whole(const at::Tensor& whole) {
  check_memory(whole);
  TensorSlice slice;
  for (std::int64_t size : whole.sizes()) slice.push_back({{0, size}});
  return slice;
}

struct Describe {
  std::ostringstream& out;
  void operator()(const Uniform& d) const { out << "Uniform(" << d.from << ", " << d.to << ")"; }
  void operator()(const Normal& d) const { out << "Normal(" << d.mean << ", " << d.std << ")"; }
  void operator()(const LogNormal& d) const {
    out << "LogNormal(" << d.mean << ", " << d.std << ")";
  }
  void operator()(const Exponential& d) const { out << "Exponential(" << d.lambda << ")"; }
  void operator()(const Cauchy& d) const { out << "Cauchy(" << d.median << ", " << d.sigma << ")"; }
  void operator()(const Geometric& d) const { out << "Geometric(" << d.p << ")"; }
  void operator()(const Bernoulli& d) const { out << "Bernoulli(" << d.p << ")"; }
  void operator()(const Integers& d) const {
    out << "Integers(" << d.low << ", " << (d.high ? std::to_string(*d.high) : "...") << ")";
  }
};

}  // namespace

std::string to_string(const Distribution& distribution) {
  std::ostringstream out;
  std::visit(Describe{out}, distribution);
  return out.str();
}

FillPlan::FillPlan(const DTensorSpec& spec, const Coordinate& coordinate)
    : whole_(spec.shape()), slice_(slice_at(spec, coordinate)) {}

void FillPlan::fill(const at::Tensor& tile, const Distribution& distribution,
                    const Draw& draw) const {
  fill_as(tile, tile.scalar_type(), {slice_, whole_}, distribution, draw);
}

void fill_random(const at::Tensor& tile, const DTensorSpec& spec, const Coordinate& coordinate,
                 const Distribution& distribution, const Draw& draw) {
  const TensorSlice slice =
      has_nothing_to_fill(tile) ? TensorSlice() : slice_of(tile, spec, coordinate);
  fill_as(tile, scalar_type_of(spec.meta().dtype()), {slice, spec.shape()}, distribution, draw);
}

void fill_random(const at::Tensor& whole, const Distribution& distribution, const Draw& draw) {
  const Shape shape = whole.sizes().vec();
  const TensorSlice slice = slice_of_whole(whole);
  fill_as(whole, whole.scalar_type(), {slice, shape}, distribution, draw);
}

void fill_bernoulli(const at::Tensor& tile, const DTensorSpec& spec, const Coordinate& coordinate,
                    const at::Tensor& probabilities, const Draw& draw) {
  if (has_nothing_to_fill(tile)) return;
  const TensorSlice slice = slice_of(tile, spec, coordinate);
  toss(tile, {slice, spec.shape()}, probabilities, draw);
}

void fill_bernoulli(const at::Tensor& whole, const at::Tensor& probabilities, const Draw& draw) {
  if (has_nothing_to_fill(whole)) return;
  const Shape shape = whole.sizes().vec();
  const TensorSlice slice = slice_of_whole(whole);
  toss(whole, {slice, shape}, probabilities, draw);
}

}  // namespace tegula::inner

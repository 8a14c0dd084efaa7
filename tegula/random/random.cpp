// The idea: ranks need not talk about random numbers if each counts the draws. The state is a seed
// and that count, one per rank, kept with its world.
#include "tegula/random/random.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "tegula/base/error.h"
#include "tegula/base/philox.h"

namespace tegula {

using namespace inner;

namespace {

struct WorldRandom {
  std::mutex mutex;
  RNGState state;
};

// Elements have indices below 2^63; generators take the blocks from there on.
constexpr std::uint64_t kBeyondElements = std::uint64_t{1} << 63;

}  // namespace

void manual_seed(const World& world, std::uint64_t seed) {
  set_rng_state(world, {.seed = seed, .next_draw = 0});
}

RNGState rng_state(const World& world) {
  auto& random = world.part<WorldRandom>();
  const std::lock_guard lock(random.mutex);
  return random.state;
}

void set_rng_state(const World& world, const RNGState& state) {
  auto& random = world.part<WorldRandom>();
  const std::lock_guard lock(random.mutex);
  random.state = state;
}

Draw inner::next_draw(const World& world) {
  auto& random = world.part<WorldRandom>();
  const std::lock_guard lock(random.mutex);
  return {.seed = random.state.seed, .number = random.state.next_draw++};
}

Draw inner::draw_from(at::Generator generator) {
  if (!generator.defined() || !generator.device().is_cpu()) {
    throw UsageError("random numbers need a CPU generator")
        .fact("got", generator.defined() ? generator.device().str() : "undefined")
        .hint("pass a CPU generator in the same state on every rank, or none");
  }
  const std::lock_guard lock(generator.mutex());
  return {.seed = generator.get<at::CPUGeneratorImpl>()->random64(), .number = 0};
}

at::Generator inner::replicated_generator(const Draw& draw) {
  // A seed would do no justice to a draw: this engine looks at 32 bits of it, and among some ten
  // thousand draws two would be alike. So the whole state is filled.
  at::mt19937 engine(draw.seed);
  at::mt19937_data_pod data = engine.data();
  for (std::size_t i = 0; i < data.state_.size(); i += 4) {
    const RandomBits bits = random_bits(draw.seed, kBeyondElements + i / 4, draw.number);
    data.state_[i] = static_cast<std::uint32_t>(bits.first);
    data.state_[i + 1] = static_cast<std::uint32_t>(bits.first >> 32);
    data.state_[i + 2] = static_cast<std::uint32_t>(bits.second);
    data.state_[i + 3] = static_cast<std::uint32_t>(bits.second >> 32);
  }
  engine.set_data(data);
  at::Generator generator = at::detail::createCPUGenerator(draw.seed);
  generator.get<at::CPUGeneratorImpl>()->set_engine(engine);
  return generator;
}

}  // namespace tegula

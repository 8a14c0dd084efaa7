// The idea: ranks need not talk about random numbers if each counts the draws. The count is kept
// where programs save and restore it anyway: in the seed of torch's generator (seed_word.h). What
// the seed cannot tell, which streams drew, is kept with the world (draw_history.h).
#include "tegula/random/random.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tegula/base/error.h"
#include "tegula/base/hash.h"
#include "tegula/base/philox.h"
#include "tegula/bridge/seed_word.h"
#include "tegula/comm/agreements.h"
#include "tegula/comm/comm_log.h"
#include "tegula/comm/recovery.h"
#include "tegula/comm/thread_seed.h"
#include "tegula/random/draw_history.h"

namespace tegula {

using namespace inner;

namespace {

// Elements have indices below 2^63; generators take the blocks from there on.
constexpr std::uint64_t kBeyondElements = std::uint64_t{1} << 63;

// Sizes are no part of a stream's name, so that a program draws the same on meshes of any size. So
// a slice is known by the axes that it names; of joined or split axes the sizes must tell.
bool leaves_axes_out(const DeviceMesh& mesh, const DeviceMesh& root) {
  const bool is_slice =
      std::all_of(mesh.axes().begin(), mesh.axes().end(), [&](const MeshAxis& axis) {
        return std::find(root.axes().begin(), root.axes().end(), axis) != root.axes().end();
      });
  return is_slice ? mesh.ndim() < root.ndim() : mesh.fiber_count() > 1;
}

std::vector<std::string> axis_names(const DeviceMesh& mesh) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  std::sort(names.begin(), names.end());
  return names;
}

// Ranks that draw together.
struct Stream {
  std::uint64_t number = 0;         // 0 where all ranks draw; else what the mesh leaves out
  std::vector<std::int64_t> ranks;  // in order
};

std::uint64_t stream_number(const DeviceMesh& mesh, const World& world) {
  const DeviceMesh root = mesh.root();
  const bool is_part = root.size() < world.size();
  const bool is_slice = leaves_axes_out(mesh, root);
  if (!is_part && !is_slice) return 0;
  Hasher hasher;
  if (is_part) {
    std::vector<std::int64_t> ranks = root.ranks();
    std::sort(ranks.begin(), ranks.end());
    hasher.add_all(ranks);
  }
  if (is_slice) {
    for (const std::string& name : axis_names(mesh)) hasher.add(name);
    hasher.add("of");
    for (const std::string& name : axis_names(root)) hasher.add(name);
  }
  return hasher.result();
}

// None: the rank is outside of the mesh.
std::optional<Stream> stream_of(const DeviceMesh& mesh, const World& world) {
  const std::optional<std::int64_t> fiber = mesh.fiber_of(world.rank());
  if (!fiber) return std::nullopt;
  Stream stream{stream_number(mesh, world), mesh.ranks(*fiber)};
  std::sort(stream.ranks.begin(), stream.ranks.end());
  return stream;
}

struct MeshHash {
  std::size_t operator()(const DeviceMesh& mesh) const { return mesh.hash(); }
};

struct WorldRandom {
  std::mutex mutex;
  DrawHistories histories;
  std::unordered_map<DeviceMesh, std::optional<Stream>, MeshHash> streams;

  const std::optional<Stream>& stream(const DeviceMesh& mesh, const World& world) {
    const auto found = streams.find(mesh);
    if (found != streams.end()) return found->second;
    // without its owner, which is the world that keeps this
    return streams.emplace(mesh.with_owner(nullptr), stream_of(mesh, world)).first->second;
  }
};

// Calls `act` with the world's histories and the word that says where this rank's draws stand,
// which it may change.
template <class Act>
void with_word(const World& world, const Act& act) {
  auto& random = world.part<WorldRandom>();
  const std::lock_guard lock(random.mutex);
  if (std::optional<std::uint64_t>& of_thread = world.part<comm::ThreadSeed>().word) {
    act(random, *of_thread);
    return;
  }
  SeedWord seed;
  std::uint64_t word = seed.value();
  act(random, word);
  if (word != seed.value()) seed.set(word);
}

// Ranks whose seeds differ learn of it at their next communication.
void note_draw(const World& world, const Stream& stream, const Draw& draw) {
  comm::agree(world, stream.ranks, Hasher().add(draw.seed).add(draw.number).result(),
              "a random draw of " + std::string(CommLabel::current()));
}

// A rank that failed may have drawn less than the others: all begin anew, with a seed that follows
// from where rank 0 is and that no history knows.
void agree_again(const World& world) {
  if (world.size() == 1) return;
  std::uint64_t word = 0;
  with_word(world, [&](WorldRandom&, std::uint64_t& mine) { word = mine; });
  at::Tensor shared = at::zeros({1}, at::kLong);
  std::memcpy(shared.data_ptr(), &word, sizeof(word));
  shared = world.group().broadcast(shared, 0);
  std::memcpy(&word, shared.const_data_ptr(), sizeof(word));
  manual_seed(world, mix_bits(word));
}

const bool kAgreesAgain = [] {
  comm::on_recovery(agree_again);
  return true;
}();

Draw draw_from(at::Generator generator) {
  if (!generator.defined() || !generator.device().is_cpu()) {
    throw UsageError("random numbers need a CPU generator")
        .fact("got", generator.defined() ? generator.device().str() : "undefined")
        .hint("pass a CPU generator in the same state on every rank, or none");
  }
  const std::lock_guard lock(generator.mutex());
  return {.seed = generator.get<at::CPUGeneratorImpl>()->random64(), .number = 0};
}

}  // namespace

void manual_seed(const World& world, std::uint64_t seed) {
  set_rng_state(world, {.seed = seed, .draws = {}});
}

RNGState rng_state(const World& world) {
  RNGState state;
  with_word(world, [&](WorldRandom& random, std::uint64_t word) {
    const DrawHistory& history = random.histories.at(word);
    state = {.seed = history.base(), .draws = history.counts()};
  });
  return state;
}

void set_rng_state(const World& world, const RNGState& state) {
  with_word(world, [&](WorldRandom& random, std::uint64_t& word) {
    DrawHistory history(state.seed, state.draws);
    word = history.word();
    random.histories.add(std::move(history));
  });
}

Draw inner::next_draw(const World& world, const DeviceMesh& mesh) {
  Draw draw;
  with_word(world, [&](WorldRandom& random, std::uint64_t& word) {
    const std::optional<Stream>& stream = random.stream(mesh, world);
    if (!stream) return;
    DrawHistory& history = random.histories.at(word);
    draw = {.seed = history.next(stream->number), .number = stream->number};
    word = history.word();
    note_draw(world, *stream, draw);
  });
  return draw;
}

Draw inner::next_draw(const World& world, const DeviceMesh& mesh, at::Generator generator) {
  if (is_default(generator)) return next_draw(world, mesh);
  const Draw draw = draw_from(std::move(generator));
  if (const std::optional<Stream> stream = stream_of(mesh, world)) {
    note_draw(world, *stream, draw);
  }
  return draw;
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

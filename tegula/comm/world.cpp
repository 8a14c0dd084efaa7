// A world finds its ranks once (shm/meeting.h on a host, a store between hosts); groups are made on
// demand by their members, each over the engine that fits where they are.
#include "tegula/comm/world.h"

#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <map>
#include <mutex>
#include <set>

#include "tegula/base/error.h"
#include "tegula/base/log.h"
#include "tegula/base/text.h"
#include "tegula/bridge/seed_word.h"
#include "tegula/comm/engines.h"
#include "tegula/comm/environment.h"
#include "tegula/comm/hosts.h"
#include "tegula/comm/lane.h"
#include "tegula/comm/shm/engine.h"
#include "tegula/comm/shm/meeting.h"
#include "tegula/comm/shm/store.h"
#include "tegula/comm/waiting.h"
#include "tegula/comm/world_state.h"

namespace tegula {

using namespace inner;

namespace inner::comm {

std::vector<int> counted_up(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) ranks[static_cast<std::size_t>(rank)] = rank;
  return ranks;
}

namespace {

std::vector<std::int64_t> widened(const std::vector<int>& ranks) {
  return {ranks.begin(), ranks.end()};
}

void check_ranks(const WorldState& world, const std::vector<int>& ranks) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError("cannot make a group: " + why)
        .fact("ranks", bracketed(widened(ranks)))
        .fact("world",
              counted(world.size, "rank", "ranks") + ", I am rank " + std::to_string(world.rank))
        .hint("list each member once; only members may make the group");
  };
  std::set<int> seen;
  for (int rank : ranks) {
    if (rank < 0 || rank >= world.size) refuse("there is no rank " + std::to_string(rank));
    if (!seen.insert(rank).second) refuse("rank " + std::to_string(rank) + " is there twice");
  }
  if (!seen.contains(world.rank)) refuse("this rank is not in it");
}

bool are_on_this_host(const WorldState& world, const std::vector<int>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
    return world.board_ranks[static_cast<std::size_t>(rank)] >= 0;
  });
}

std::string chosen_backend(const WorldState& world, const std::vector<int>& ranks,
                           const GroupOptions& options) {
  if (world.board == nullptr) return "fake";
  if (!options.backend.empty()) return options.backend;
  if (!world.backend.empty()) return world.backend;
  return are_on_this_host(world, ranks) ? "shm" : "gloo";
}

// On this host's board.
std::vector<int> places_of(const WorldState& world, const std::vector<int>& ranks) {
  std::vector<int> places;
  for (int rank : ranks) places.push_back(world.board_ranks[static_cast<std::size_t>(rank)]);
  return places;
}

std::shared_ptr<Engine> new_shm_engine(const WorldState& world, const std::string& key,
                                       const std::string& lane, const std::vector<int>& ranks,
                                       int index, std::chrono::milliseconds timeout) {
  if (!are_on_this_host(world, ranks)) {
    throw UsageError("the shm engine serves ranks of one host")
        .fact("ranks", bracketed(widened(ranks)))
        .hint("choose gloo or mpi for groups across hosts");
  }
  shm::ChannelOptions options;
  options.name = key;
  options.world_ranks = ranks;
  options.members = places_of(world, ranks);
  options.index = index;
  options.epoch = world.epoch;
  options.lane = number_of_lane(lane);
  options.timeout = timeout;
  options.blocks = world.blocks;
  return std::make_shared<shm::ShmEngine>(world.board, options);
}

c10::intrusive_ptr<c10d::Store> store_for(const WorldState& world, const std::string& key,
                                          const std::vector<int>& ranks) {
  const std::uint32_t epoch = world.epoch;
  const std::string name = std::to_string(epoch) + "/" + key;
  if (world.store) return c10::make_intrusive<c10d::PrefixStore>("group/" + name, world.store);
  return c10::make_intrusive<shm::BoardStore>(world.board, "store/" + name + "/",
                                              places_of(world, ranks), epoch);
}

std::shared_ptr<Engine> new_engine(const WorldState& world, const std::string& backend,
                                   const std::string& group, const std::string& lane,
                                   const std::vector<int>& ranks, int index,
                                   std::chrono::milliseconds timeout) {
  if (backend == "fake") return make_fake_engine();
  const std::string key = lane.empty() ? group : group + " on lane " + in_quotes(lane);
  if (backend == "shm") return new_shm_engine(world, key, lane, ranks, index, timeout);
  EngineOptions options;
  options.group = key;
  options.index = index;
  options.size = static_cast<int>(ranks.size());
  options.local_rank = world.local_rank;
  options.ranks = ranks;
  options.timeout = timeout;
  options.communicator = world.communicator;
  options.why_failed = [board = world.board,
                        epoch = world.epoch.load()]() -> std::optional<CommError> {
    if (!board->fault(epoch).raised()) return std::nullopt;
    return board->fault(epoch).error();
  };
  if (!are_on_this_host(world, ranks)) options.rendezvous_host = world.rendezvous_host;
  if (backend == "mpi") return make_mpi_engine(options);
  options.store = store_for(world, key, ranks);
  if (backend == "gloo") return make_gloo_engine(options);
  if (backend == "nccl") return make_nccl_engine(options);
  throw UsageError("there is no backend " + tegula::in_quotes(backend))
      .hint("choose shm, gloo, mpi or nccl");
}

// Under tegula run the ranks share the cores out.
void warn_of_threads(const WorldState& world, const std::string& launcher) {
  if (world.rank != 0 || world.local_size == 1 || launcher == "tegula run") return;
  const int threads = at::get_num_threads();
  const int cores = world.board->processors();
  if (threads == 1 || threads * world.local_size <= cores) return;
  log_line(LogLevel::Warn,
           "tegula: " + std::to_string(world.local_size) + " ranks with " +
               std::to_string(threads) + " threads each share " + counted(cores, "core", "cores") +
               "; set OMP_NUM_THREADS=" + std::to_string(std::max(1, cores / world.local_size)));
}

// The generators of processes that nobody seeded differ, and distributed draws must not: they begin
// with rank 0's seed.
void begin_with_one_seed(const WorldState& world) {
  const c10::intrusive_ptr<c10d::Store> store = store_for(world, "seed", counted_up(world.size));
  if (world.rank == 0) {
    store->set("word", std::to_string(SeedWord().value()));
    return;
  }
  store->setTimeout(world.timeout);
  const std::string text = store->get_to_str("word");
  std::uint64_t word = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), word);
  if (code != std::errc() || end != text.data() + text.size()) {
    throw CommError("rank 0 sent a seed that is no number").fact("seed", text);
  }
  SeedWord().set(word);
}

// The ranks of a job make its worlds in the same order, and those of one number meet. The counts
// belong to the process, as its places in jobs do: of one that a launcher started, and of those
// that torch.distributed's process groups are.
int next_world_number(const std::string& job) {
  static std::mutex mutex;
  static std::map<std::string, int> made;
  const std::lock_guard<std::mutex> lock(mutex);
  return made[job]++;
}

GroupSlot& slot_for(WorldState& world, const std::string& key) {
  const std::lock_guard<std::mutex> lock(world.mutex);
  std::unique_ptr<GroupSlot>& slot = world.groups[key];
  if (!slot) slot = std::make_unique<GroupSlot>();
  return *slot;
}

// An abort that came while the group was made is known to it before anybody uses it.
void publish(WorldState& world, GroupSlot& slot, std::shared_ptr<GroupState> made) {
  const std::lock_guard<std::mutex> lock(world.mutex);
  if (world.aborted) made->engine().abort(*world.aborted);
  slot.group = std::move(made);
}

}  // namespace

std::chrono::milliseconds checked_timeout(std::chrono::milliseconds timeout) {
  constexpr std::chrono::seconds kLongest{1'000'000'000};  // moments are counted in ns
  if (timeout.count() > 0 && timeout <= kLongest) return timeout;
  throw UsageError("a rank cannot wait " + std::to_string(timeout.count()) + " ms for another")
      .hint("give a timeout from 1 ms to " + std::to_string(kLongest.count()) + " s");
}

const std::shared_ptr<GroupState>* find_or_make_group(WorldState& world,
                                                      const std::vector<int>& ranks,
                                                      const GroupOptions& options,
                                                      const std::string& axis) {
  world.home.check();
  check_ranks(world, ranks);
  const std::string backend = chosen_backend(world, ranks, options);
  const std::string name = options.name.empty() ? "unnamed" : options.name;
  const std::string key = name + " " + bracketed(widened(ranks)) + " over " + backend;
  GroupSlot& slot = slot_for(world, key);
  const std::unique_ptr<LetGo> let_go = let_go_while_waiting();
  const std::lock_guard<std::mutex> making(slot.making);
  if (slot.group) {
    slot.group->engine();  // after a recovery the members meet again, as those who make it now
    return &slot.group;
  }
  auto made = make_shared_at_home<GroupState>();
  made->name = name;
  made->axis = axis.empty() ? name : axis;
  made->ranks = ranks;
  made->index = static_cast<int>(std::find(ranks.begin(), ranks.end(), world.rank) - ranks.begin());
  made->buffers = world.buffers;
  made->log_book = world.log_book;
  if (world.board) made->flights = {world.board, &world.board->flights(world.local_rank)};
  made->agreements = world.agreements;
  made->timeout = checked_timeout(options.timeout.value_or(world.timeout));
  made->make_engine = [&world, backend, key, ranks, index = made->index](
                          const std::string& lane, std::chrono::milliseconds timeout) {
    return new_engine(world, backend, key, lane, ranks, index, timeout);
  };
  made->engine();  // the members meet
  publish(world, slot, std::move(made));
  return &slot.group;
}

// The number of a type is the same in all worlds of the process.
std::size_t next_slot() {
  static std::atomic<std::size_t> given = 0;
  return given++;
}

}  // namespace inner::comm

using comm::WorldState;

World World::from_env(const WorldOptions& options) {
  log_level();  // a wrong one is an error now rather than a silence later
  const comm::Place place = comm::place_in_environment();
  auto state = make_shared_at_home<WorldState>();
  state->rank = place.rank;
  state->size = place.size;
  state->local_rank = place.local_rank;
  state->local_size = place.local_size;
  state->backend = options.backend.empty() ? place.backend : options.backend;
  state->timeout = comm::checked_timeout(
      options.timeout.value_or(place.timeout.value_or(comm::kDefaultTimeout)));
  const int number = comm::next_world_number(place.job);
  const std::string world_name = "world " + std::to_string(number);
  if (place.size == 1) {
    state->board = shm::Board::for_threads(1);
    state->board->join(0);
  } else {
    state->share(shm::meet_on_host(place.job + "|" + world_name, place.local_rank, place.local_size,
                                   state->timeout));
  }
  if (place.local_size < place.size) {
    comm::find_hosts(*state, place, world_name);
  } else {
    state->board_ranks = comm::counted_up(place.size);
  }
  if (number == 0) comm::warn_of_threads(*state, place.launcher);
  if (place.size > 1) comm::begin_with_one_seed(*state);
  return World(state);
}

World World::alone() {
  auto state = make_shared_at_home<WorldState>();
  state->board = shm::Board::for_threads(1);
  state->board->join(0);
  state->board_ranks = {0};
  return World(state);
}

World World::fake(int size, int rank) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw UsageError("there is no rank " + std::to_string(rank) + " in a world of " +
                     std::to_string(size))
        .hint("ranks are 0 ... size - 1");
  }
  auto state = make_shared_at_home<WorldState>();
  state->size = state->local_size = size;
  state->rank = state->local_rank = rank;
  return World(state);
}

WorldState& World::state() const { return static_cast<WorldState&>(*head_); }
WorldState& inner::comm::state_of(const World& world) { return world.state(); }

int World::local_rank() const { return state().local_rank; }
int World::local_size() const { return state().local_size; }
std::chrono::milliseconds World::timeout() const { return state().timeout; }
const std::string& World::backend() const { return state().backend; }

Group World::group() const { return group(comm::counted_up(size()), {"world", "", std::nullopt}); }

Group World::group(const std::vector<int>& ranks, const GroupOptions& options) const {
  return Group(*comm::find_or_make_group(state(), ranks, options, ""));
}

void World::abort(const std::string& reason) const {
  state().home.check();
  const CommError error = CommError(reason).fact("by", "rank " + std::to_string(rank()));
  if (state().board) state().board->fault(epoch()).raise(error);
  const std::lock_guard<std::mutex> lock(state().mutex);
  if (!state().aborted) state().aborted = error;
  for (const auto& [key, slot] : state().groups) {
    if (!slot->group) continue;
    for (const auto& engine : slot->group->engines()) engine->abort(error);
  }
}

void* World::part(std::size_t slot, std::type_index type,
                  const std::function<std::shared_ptr<void>()>& make) const {
  const std::lock_guard<std::mutex> lock(state().mutex);
  std::shared_ptr<void>& held = state().parts[type];
  if (!held) held = make();
  if (slot < comm::WorldHead::kSlots) {
    head_->slots[slot].store(held.get(), std::memory_order_release);
  }
  return held.get();
}

}  // namespace tegula

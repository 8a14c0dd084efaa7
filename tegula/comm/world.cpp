// A world finds its ranks once (shm/meeting.h on a host, a store between hosts); groups are made on
// demand by their members, each over the engine that fits where they are.
#include "tegula/comm/world.h"

#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

#include "tegula/base/error.h"
#include "tegula/base/launch.h"
#include "tegula/base/text.h"
#include "tegula/bridge/seed_word.h"
#include "tegula/comm/engines.h"
#include "tegula/comm/environment.h"
#include "tegula/comm/shm/engine.h"
#include "tegula/comm/shm/meeting.h"
#include "tegula/comm/shm/store.h"
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

std::shared_ptr<Engine> new_shm_engine(const WorldState& world, const std::string& key,
                                       const std::vector<int>& ranks, int index,
                                       std::chrono::milliseconds timeout) {
  if (!are_on_this_host(world, ranks)) {
    throw UsageError("the shm engine serves ranks of one host")
        .fact("ranks", bracketed(widened(ranks)))
        .hint("choose gloo or mpi for groups across hosts");
  }
  shm::ChannelOptions options;
  options.name = key;
  options.world_ranks = ranks;
  for (int rank : ranks)
    options.members.push_back(world.board_ranks[static_cast<std::size_t>(rank)]);
  options.index = index;
  options.timeout = timeout;
  options.blocks = world.blocks;
  return std::make_shared<shm::ShmEngine>(world.board, options);
}

c10::intrusive_ptr<c10d::Store> store_for(const WorldState& world, const std::string& key) {
  if (world.store) return c10::make_intrusive<c10d::PrefixStore>("group/" + key, world.store);
  return c10::make_intrusive<shm::BoardStore>(world.board, "store/" + key + "/");
}

std::shared_ptr<Engine> new_engine(const WorldState& world, const std::string& backend,
                                   const std::string& key, const std::vector<int>& ranks, int index,
                                   std::chrono::milliseconds timeout) {
  if (backend == "fake") return make_fake_engine();
  if (backend == "shm") return new_shm_engine(world, key, ranks, index, timeout);
  EngineOptions options;
  options.group = key;
  options.index = index;
  options.size = static_cast<int>(ranks.size());
  options.local_rank = world.local_rank;
  options.ranks = ranks;
  options.timeout = timeout;
  options.communicator = world.communicator;
  if (!are_on_this_host(world, ranks)) options.rendezvous_host = world.rendezvous_host;
  if (backend == "mpi") return make_mpi_engine(options);
  options.store = store_for(world, key);
  if (backend == "gloo") return make_gloo_engine(options);
  if (backend == "nccl") return make_nccl_engine(options);
  throw UsageError("there is no backend " + tegula::in_quotes(backend))
      .hint("choose shm, gloo, mpi or nccl");
}

// --- worlds of several hosts ------------------------------------------------------------------

c10::intrusive_ptr<c10d::Store> connect_store(const Place& place,
                                              std::chrono::milliseconds timeout) {
  if (place.store_host.empty() || place.store_port == 0) {
    throw UsageError("ranks on several hosts need a place to find each other")
        .fact("launcher", place.launcher)
        .hint(std::string("set ") + launch::kStoreHost + " and " + launch::kStorePort +
              " to a host and a free port of rank 0");
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(place.store_port);
  options.isServer = place.rank == 0 && !place.launcher_has_store;
  options.waitWorkers = false;
  options.timeout = timeout;
  options.useLibUV = false;  // not in every libtorch
  return c10::make_intrusive<c10d::TCPStore>(place.store_host, options);
}

}  // namespace

std::string host_identity() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  char space[256] = {};
  if (readlink("/proc/self/ns/net", space, sizeof(space) - 1) < 0) space[0] = '\0';
  return std::string(name) + " " + space;
}

namespace {

std::vector<int> ranks_on_hosts(const WorldState& world) {
  const std::string mine = host_identity();
  world.store->set("host/" + std::to_string(world.rank),
                   mine + "#" + std::to_string(world.local_rank));
  std::vector<int> places;
  for (int rank = 0; rank < world.size; ++rank) {
    const std::string text = world.store->get_to_str("host/" + std::to_string(rank));
    const std::size_t mark = text.rfind('#');
    places.push_back(text.substr(0, mark) == mine ? std::stoi(text.substr(mark + 1)) : -1);
  }
  return places;
}

// The generators of processes that nobody seeded differ, and distributed draws must not: they begin
// with rank 0's seed.
void begin_with_one_seed(const WorldState& world) {
  const c10::intrusive_ptr<c10d::Store> store = store_for(world, "seed");
  if (world.rank == 0) {
    store->set("word", std::to_string(SeedWord().value()));
    return;
  }
  store->setTimeout(world.timeout);
  const std::uint64_t word = std::stoull(store->get_to_str("word"));
  SeedWord().set(word);
}

// The ranks of a job make its worlds in the same order, and those of one number meet. The count
// belongs to the process, as its place in the job does.
int next_world_number() {
  static std::atomic<int> made = 0;
  return made++;
}

}  // namespace

namespace {

GroupSlot& slot_for(WorldState& world, const std::string& key) {
  const std::lock_guard<std::mutex> lock(world.mutex);
  std::unique_ptr<GroupSlot>& slot = world.groups[key];
  if (!slot) slot = std::make_unique<GroupSlot>();
  return *slot;
}

// An abort that came while the group was made is known to it before anybody uses it.
void publish(WorldState& world, GroupSlot& slot, std::shared_ptr<GroupState> made) {
  const std::lock_guard<std::mutex> lock(world.mutex);
  if (world.aborted) made->engine->abort(*world.aborted);
  slot.group = std::move(made);
}

}  // namespace

const std::shared_ptr<GroupState>* find_or_make_group(WorldState& world,
                                                      const std::vector<int>& ranks,
                                                      const GroupOptions& options,
                                                      const std::string& axis) {
  check_ranks(world, ranks);
  const std::string backend = chosen_backend(world, ranks, options);
  const std::string name = options.name.empty() ? "unnamed" : options.name;
  const std::string key = name + " " + bracketed(widened(ranks)) + " over " + backend;
  GroupSlot& slot = slot_for(world, key);
  const std::lock_guard<std::mutex> making(slot.making);
  if (slot.group) return &slot.group;
  auto made = std::make_shared<GroupState>();
  made->name = name;
  made->axis = axis.empty() ? name : axis;
  made->ranks = ranks;
  made->index = static_cast<int>(std::find(ranks.begin(), ranks.end(), world.rank) - ranks.begin());
  made->buffers = world.buffers;
  made->log_book = world.log_book;
  made->engine =
      new_engine(world, backend, key, ranks, made->index, options.timeout.value_or(world.timeout));
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
  const comm::Place place = comm::place_in_environment();
  auto state = std::make_shared<WorldState>();
  state->rank = place.rank;
  state->size = place.size;
  state->local_rank = place.local_rank;
  state->local_size = place.local_size;
  state->backend = options.backend.empty() ? place.backend : options.backend;
  state->timeout = options.timeout.value_or(place.timeout.value_or(comm::kDefaultTimeout));
  const std::string world_name = "world " + std::to_string(comm::next_world_number());
  if (place.size == 1) {
    state->board = shm::Board::for_threads(1);
    state->board->join(0);
  } else {
    state->share(shm::meet_on_host(place.job + "|" + world_name, place.local_rank, place.local_size,
                                   state->timeout));
  }
  if (place.local_size < place.size) {
    state->store = c10::make_intrusive<c10d::PrefixStore>(
        world_name, comm::connect_store(place, state->timeout));
    state->rendezvous_host = place.store_host;
    state->board_ranks = comm::ranks_on_hosts(*state);
  } else {
    state->board_ranks = comm::counted_up(place.size);
  }
  if (place.size > 1) comm::begin_with_one_seed(*state);
  return World(state);
}

World World::alone() {
  auto state = std::make_shared<WorldState>();
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
  auto state = std::make_shared<WorldState>();
  state->size = state->local_size = size;
  state->rank = state->local_rank = rank;
  return World(state);
}

WorldState& World::state() const { return static_cast<WorldState&>(*head_); }

int World::local_rank() const { return state().local_rank; }
int World::local_size() const { return state().local_size; }
std::chrono::milliseconds World::timeout() const { return state().timeout; }
const std::string& World::backend() const { return state().backend; }

Group World::group() const { return group(comm::counted_up(size()), {"world", "", std::nullopt}); }

Group World::group(const std::vector<int>& ranks, const GroupOptions& options) const {
  return Group(*comm::find_or_make_group(state(), ranks, options, ""));
}

void World::abort(const std::string& reason) const {
  const CommError error = CommError(reason).fact("by", "rank " + std::to_string(rank()));
  if (state().board) state().board->fault().raise(error);
  const std::lock_guard<std::mutex> lock(state().mutex);
  if (!state().aborted) state().aborted = error;
  for (const auto& [key, slot] : state().groups) {
    if (slot->group) slot->group->engine->abort(error);
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

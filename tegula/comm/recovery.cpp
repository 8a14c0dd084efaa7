// How a world recovers: this rank ends what it has to do with the old epoch, waits until all ranks
// have, and counts one up. What has to be made anew is made when it is next used.
#include "tegula/comm/recovery.h"

#include <string>
#include <vector>

#include "tegula/base/error.h"
#include "tegula/base/sentence.h"
#include "tegula/comm/lane.h"
#include "tegula/comm/world_state.h"

namespace tegula {

using namespace inner;

using comm::WorldState;

namespace inner::comm {
namespace {

// The library's own; written while it is loaded.
std::vector<void (*)(const World&)>& recovery_actions() {
  static std::vector<void (*)(const World&)> actions;
  return actions;
}

std::vector<std::shared_ptr<GroupState>> groups_of(WorldState& world) {
  const std::lock_guard<std::mutex> lock(world.mutex);
  std::vector<std::shared_ptr<GroupState>> groups;
  for (const auto& [key, slot] : world.groups) {
    if (slot->group) groups.push_back(slot->group);
  }
  return groups;
}

void check_engines(const std::vector<std::shared_ptr<GroupState>>& groups) {
  for (const auto& group : groups) {
    for (const std::shared_ptr<Engine>& engine : group->engines()) {
      if (engine->name() != "mpi") continue;
      throw CommError("a world over mpi ends with its first error")
          .fact("group", group->name)
          .hint("start the job again, or use shm or gloo");
    }
  }
}

void end_groups(const std::vector<std::shared_ptr<GroupState>>& groups, const CommError& reason) {
  for (const auto& group : groups) group->retire_engines(reason);
}

// What this rank catches, if it is in a catch block; else what it threw last in an op. What a peer
// or a link did says so itself.
CommError reason_of(const WorldState& world) {
  const std::exception_ptr caught = std::current_exception();
  try {
    if (caught) std::rethrow_exception(caught);
  } catch (const CommError& known) {
    return known;
  } catch (...) {
  }
  const std::string why = caught ? sentence_of(caught) : world.board->last_error(world.local_rank);
  return CommError("rank " + std::to_string(world.rank) +
                   (why.empty() ? " began to recover from an error" : " failed: " + why))
      .hint("all ranks call World::recover after an error that one of them met");
}

// Hosts have no board in common: each rank says in the store that it is there. It may say so again.
void meet_across_hosts(const WorldState& world, std::uint32_t epoch) {
  const auto key = [&](int rank) {
    return "epoch " + std::to_string(epoch) + "/" + std::to_string(rank);
  };
  world.store->set(key(world.rank), "here");
  std::vector<std::string> all;
  for (int rank = 0; rank < world.size; ++rank) all.push_back(key(rank));
  try {
    world.store->wait(all, world.timeout);
  } catch (const std::exception&) {
    throw CommError("cannot recover: not all ranks of other hosts called World::recover in time")
        .fact("because", sentence_of(std::current_exception()))
        .hint("all ranks call it after an error");
  }
}

}  // namespace

void on_recovery(void (*action)(const World& world)) { recovery_actions().push_back(action); }

}  // namespace inner::comm

void World::recover() const {
  WorldState& world = state();
  world.home.check();
  const auto groups = comm::groups_of(world);
  comm::check_engines(groups);
  const std::uint32_t next = world.epoch + 1;
  if (world.board) {
    shm::Fault& fault = world.board->fault(world.epoch);
    fault.raise(comm::reason_of(world));
    comm::end_groups(groups, fault.error());  // the first rank's, for all
    world.board->begin_epoch(world.local_rank, next, world.timeout);
    if (world.store) comm::meet_across_hosts(world, next);
  }
  {
    const std::lock_guard<std::mutex> lock(world.mutex);
    world.aborted.reset();
    world.epoch = next;
  }
  world.agreements->clear();
  for (const auto action : comm::recovery_actions()) action(*this);
}

void inner::comm::note_error(const World& world, const std::vector<std::int64_t>& ranks,
                             const std::string& text) {
  const WorldState& state = state_of(world);
  if (ranks.size() > 1) state.agreements->note_error(ranks, text);
  if (!state.board) return;
  std::vector<int> on_board;
  for (const std::int64_t rank : ranks) {
    on_board.push_back(state.board_ranks[static_cast<std::size_t>(rank)]);
  }
  state.board->note_error(state.local_rank, on_board, comm::number_of_lane(Lane::current()), text);
}

}  // namespace tegula

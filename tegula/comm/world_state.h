// What the handles of one world share.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <typeindex>
#include <vector>

#include "tegula/base/error.h"
#include "tegula/base/process.h"
#include "tegula/comm/group_state.h"
#include "tegula/comm/known_meshes.h"
#include "tegula/comm/log_book.h"
#include "tegula/comm/shm/blocks.h"
#include "tegula/comm/shm/board.h"
#include "tegula/comm/world.h"

namespace tegula::inner::comm {

constexpr std::chrono::milliseconds kDefaultTimeout{300'000};

// A group's place in its world. Its members wait for each other when they make it, and nobody else
// shall wait for that: the world's mutex is not held meanwhile.
struct GroupSlot {
  std::mutex making;                  // held by the thread that makes the group
  std::shared_ptr<GroupState> group;  // null: not made; written under both mutexes
};

struct WorldState : WorldHead {
  HomeProcess home;
  int local_rank = 0;
  int local_size = 1;
  std::string backend;
  std::chrono::milliseconds timeout = kDefaultTimeout;
  std::shared_ptr<shm::Board> board;      // null: imagined
  std::vector<int> board_ranks;           // of each rank on this host's board; -1: elsewhere
  c10::intrusive_ptr<c10d::Store> store;  // of all hosts; null: one host
  std::string rendezvous_host;            // by which hosts reach the store
  std::shared_ptr<void> communicator;     // an MPI_Comm that the user gave, else null
  std::shared_ptr<shm::Blocks> blocks;    // of ranks that are processes, else null
  std::shared_ptr<Buffers> buffers = std::make_shared<Buffers>();
  std::shared_ptr<LogBook> log_book = std::make_shared<LogBook>();
  std::shared_ptr<Agreements> agreements = std::make_shared<Agreements>();

  std::mutex mutex;  // held for a moment only, never while waiting for another rank
  std::map<std::string, std::unique_ptr<GroupSlot>> groups;
  std::optional<CommError> aborted;  // by World::abort
  std::map<std::type_index, std::shared_ptr<void>> parts;
  KnownMeshes meshes;

  // The board of ranks that are processes.
  void share(std::shared_ptr<shm::Board> met) {
    board = std::move(met);
    board->set_timeout(timeout);
    blocks = std::make_shared<shm::Blocks>(board);
    buffers = std::make_shared<Buffers>(blocks);
  }

  ~WorldState() {
    parts.clear();
    for (const auto& [key, slot] : groups) {
      if (slot->group) slot->group->make_engine = nullptr;
    }
    groups.clear();
    if (rank == 0) log_book->print_report();
    if (board) board->leave(local_rank);
  }
};

// The group that World::group describes; stays where it is as long as the world. `axis` is the one
// it lies along; empty: none.
const std::shared_ptr<GroupState>* find_or_make_group(WorldState& world,
                                                      const std::vector<int>& ranks,
                                                      const GroupOptions& options,
                                                      const std::string& axis);

// The same; UsageError if it is none.
std::chrono::milliseconds checked_timeout(std::chrono::milliseconds timeout);

// 0, 1, ... size - 1
std::vector<int> counted_up(int size);

// Two processes with the same text can share memory by way of shm::meet_on_host.
std::string host_identity();

}  // namespace tegula::inner::comm

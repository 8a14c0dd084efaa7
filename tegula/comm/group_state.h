// What the handles of one group share.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tegula/comm/agreements.h"
#include "tegula/comm/buffers.h"
#include "tegula/comm/engine.h"
#include "tegula/comm/shm/flight_ring.h"

namespace tegula::inner::comm {

class LogBook;

struct GroupState {
  std::string name;
  std::string axis;  // of the mesh that the group lies along; else the name
  std::vector<int> ranks;
  int index = 0;
  std::shared_ptr<Buffers> buffers;
  std::shared_ptr<LogBook> log_book;
  std::shared_ptr<shm::FlightRing> flights;  // null: imagined ranks
  std::shared_ptr<Agreements> agreements;
  Agreed agreed;  // when the last collective was made
  std::atomic<std::chrono::milliseconds> timeout{};
  std::function<std::shared_ptr<Engine>(std::chrono::milliseconds timeout)>
      make_engine;  // empty: the world is gone

  // What carries its calls: made when it is first needed, and anew after a recovery. Any thread.
  Engine& engine() {
    Engine* const ready = ready_.load(std::memory_order_acquire);
    return ready != nullptr ? *ready : new_engine();
  }
  // Null if it is not made, or retired.
  std::shared_ptr<Engine> engine_at_hand();
  // Ends its calls with this error and lets go of the engine. While no other thread uses the group.
  std::shared_ptr<Engine> retire_engine(const CommError& error);

 private:
  Engine& new_engine();

  std::mutex mutex_;  // held while the engine is made
  std::shared_ptr<Engine> engine_;
  std::atomic<Engine*> ready_ = nullptr;
};

}  // namespace tegula::inner::comm

// What the handles of one group share.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tegula/base/process.h"
#include "tegula/comm/agreements.h"
#include "tegula/comm/buffers.h"
#include "tegula/comm/engine.h"
#include "tegula/comm/shm/flight_ring.h"

namespace tegula::inner::comm {

class LogBook;

struct GroupState {
  HomeProcess home;
  std::string name;
  std::string axis;  // of the mesh that the group lies along; else the name
  std::vector<int> ranks;
  int index = 0;
  std::shared_ptr<Buffers> buffers;
  std::shared_ptr<LogBook> log_book;
  std::shared_ptr<shm::FlightRing> flights;  // null: imagined ranks
  std::shared_ptr<Agreements> agreements;
  std::atomic<std::chrono::milliseconds> timeout{};
  std::function<std::shared_ptr<Engine>(const std::string& lane, std::chrono::milliseconds timeout)>
      make_engine;  // empty: the world is gone

  // What carries the calls of one lane (lane.h).
  struct Carrier {
    std::shared_ptr<Engine> engine;
    Agreed agreed;                     // when the last collective was made
    std::atomic<bool> is_busy{false};  // a thread is in a call
  };
  // Of the lane that this thread is on; made when it is first needed, and anew after a recovery.
  // Any thread.
  Carrier& carrier();
  Engine& engine() { return *carrier().engine; }
  // Whether that of this thread's lane is there.
  bool has_engine();
  // Those that are made.
  std::vector<std::shared_ptr<Engine>> engines();
  // Ends their calls with this error and lets go of them. While no other thread uses the group.
  void retire_engines(const CommError& error);

 private:
  Carrier& new_carrier(const std::string& lane);

  std::mutex mutex_;                                          // held while an engine is made
  std::map<std::string, std::unique_ptr<Carrier>> carriers_;  // by lane
  std::atomic<Carrier*> main_ = nullptr;                      // of no lane
};

}  // namespace tegula::inner::comm

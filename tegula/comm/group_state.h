// What the handles of one group share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tegula/base/process.h"
#include "tegula/comm/buffers.h"
#include "tegula/comm/engine.h"

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
  std::shared_ptr<Engine> engine;
};

}  // namespace tegula::inner::comm

// The embedded engine, for ranks on one host.
#pragma once

#include <memory>

#include "tegula/comm/engine.h"
#include "tegula/comm/shm/channel.h"

namespace tegula::shm {

// Collective over the members; what can go wrong is said in channel.h.
std::unique_ptr<comm::Engine> make_engine(std::shared_ptr<Board> board, ChannelOptions options);

}  // namespace tegula::shm

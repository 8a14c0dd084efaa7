// How the processes of one job on one host find each other before they share anything: by an
// abstract socket, which has no file and ends with the process that made it. The first rank makes
// the board and hands its descriptor to the others, if they run as the same user.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "tegula/comm/shm/board.h"

namespace tegula::inner::shm {

// Every rank on the host calls it with the same `job`, a text that no other job on this host has.
// Returns when this rank has the board (the first one: when all have). The rank has joined.
// CommError naming who is missing after the timeout.
std::shared_ptr<Board> meet_on_host(const std::string& job, int rank, int ranks,
                                    std::chrono::milliseconds timeout);

}  // namespace tegula::inner::shm

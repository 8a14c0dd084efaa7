// How the processes of one job on one host find each other before they share anything: by an
// abstract socket, which has no file and ends with the process that made it. The first rank makes
// the board and hands its descriptor to the others, if they run as the same user and prove that
// they know the job; it proves the same to them.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "tegula/comm/shm/board.h"

namespace tegula::inner::shm {

// Every rank on the host calls it with the same `job`, a text that no other job on this host has.
// If nobody can guess it, nobody but the job's ranks can take part, hold a rank up or tell where
// they meet. Returns when this rank has the board (the first one: when all have joined). The rank
// has joined. Signals, and peers that are slow, come again or send something else, do not matter.
//
// CommError naming who is missing after the timeout, and at once if a rank ends after it was given
// the board; the groups of ranks that have met already throw the same. UsageError on a rank that
// another process is already.
std::shared_ptr<Board> meet_on_host(const std::string& job, int rank, int ranks,
                                    std::chrono::milliseconds timeout);

// The abstract name of the socket at which the ranks of a job meet.
std::string meeting_name(const std::string& job);

}  // namespace tegula::inner::shm

// Runs a body as ranks of a world, in each of the ways that there are.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tegula/comm/world.h"

namespace tegula {

enum class Way { Threads, Processes, GlooThreads, GlooProcesses, Mpi };

std::ostream& operator<<(std::ostream& stream, Way way);

using RankBody = std::function<void(World&)>;

// How one rank's process ended.
struct RankEnd {
  int exit_code = -1;  // 0: the body returned; 1: it threw
  int signal = 0;      // that killed it
  std::string error;   // what the body threw
};

// Forks `ranks` processes. Each makes its world from the environment and runs the body. A rank that
// stops itself (SIGSTOP) is killed once all others have ended. Never hangs: ranks that live longer
// than `limit` seconds are killed.
std::vector<RankEnd> run_processes(int ranks, const RankBody& body,
                                   const WorldOptions& options = {}, double limit = 120);

// Runs the body and throws std::runtime_error if any rank failed.
void run_in(Way way, int ranks, const RankBody& body);

// What the body throws; empty: nothing.
std::string error_of(const std::function<void()>& body);
bool contains(const std::string& text, const std::string& part);

// Throws std::runtime_error with the text unless `condition`.
void require(bool condition, const std::string& text);

}  // namespace tegula

// What a launcher tells the ranks that it starts: the environment variables of `tegula run`, which
// World::from_env reads (comm/environment.h). Whoever starts ranks sets them by set_launch.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tegula::inner::launch {

// The place of a process in its job.
inline constexpr const char* kRank = "TEGULA_RANK";
inline constexpr const char* kSize = "TEGULA_WORLD_SIZE";
inline constexpr const char* kLocalRank = "TEGULA_LOCAL_RANK";
inline constexpr const char* kLocalSize = "TEGULA_LOCAL_WORLD_SIZE";
// The same text in all ranks of a job on a host, and in no other job's.
inline constexpr const char* kJob = "TEGULA_JOB";
// Optional: the engine of groups that ask for none, and how many seconds a rank waits for another.
inline constexpr const char* kBackend = "TEGULA_BACKEND";
inline constexpr const char* kTimeout = "TEGULA_TIMEOUT";
// "1": somebody watches what the ranks print, though they print into pipes.
inline constexpr const char* kTerminal = "TEGULA_TERMINAL";
// What the ranks of a job know and nobody else does, or the file that holds it (see secret_of).
inline constexpr const char* kSecret = "TEGULA_SECRET";
inline constexpr const char* kSecretFile = "TEGULA_SECRET_FILE";
// Where ranks of several hosts find each other; named as torchrun names them.
inline constexpr const char* kStoreHost = "MASTER_ADDR";
inline constexpr const char* kStorePort = "MASTER_PORT";

struct Place {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string job;
};

// Sets the variables of a place in the environment of this process, for itself and what it starts.
// Not while other threads read the environment.
void set_launch(const Place& place);
void set_variable(const char* name, const std::string& value);

// The job's secret, given as a text, else in a file; null: not given. Empty if neither is. Blanks
// and line ends around it do not count. UsageError if it has fewer than 16 characters, or if the
// file cannot be read or is open to other users.
std::string secret_of(const char* text, const char* file);

// The port that a text says: 1 ... 65535. Nothing if it is something else.
std::optional<int> port_in(std::string_view text);

}  // namespace tegula::inner::launch

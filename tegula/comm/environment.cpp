// The idea: a row per launcher says how it names things; the first row whose variables are there
// counts.
#include "tegula/comm/environment.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "tegula/base/error.h"
#include "tegula/base/launch.h"
#include "tegula/base/text.h"

namespace tegula::inner::comm {
namespace {

int number_in(const std::string& value, const char* name, int least) {
  int result = 0;
  const char* end = value.data() + value.size();
  const auto [stop, code] = std::from_chars(value.data(), end, result);
  if (code == std::errc() && stop == end && result >= least) return result;
  throw UsageError("the environment variable " + std::string(name) + " is no whole number from " +
                   std::to_string(least) + " on")
      .fact("value", value.empty() ? "not set" : value)
      .hint("let the launcher set it");
}

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  bool has(const char* name) const { return variables_(name) != nullptr; }
  std::string text(const char* name) const {
    const char* value = variables_(name);
    return value == nullptr ? "" : value;
  }
  int number(const char* name, int least = 0) const { return number_in(text(name), name, least); }
  int number_or(const char* name, int otherwise, int least = 0) const {
    return has(name) ? number(name, least) : otherwise;
  }

 private:
  const Variables& variables_;
};

// One row per launcher: how it names things.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;   // null: never set
  const char* identity[4];  // what tells its jobs apart
};

constexpr Launcher kLaunchers[] = {
    {"tegula run",
     launch::kRank,
     launch::kSize,
     launch::kLocalRank,
     launch::kLocalSize,
     {launch::kJob, nullptr}},
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", nullptr}},
    {"MPICH",
     "PMI_RANK",
     "PMI_SIZE",
     "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS",
     {"PMI_ID_JOB", "PMI_PORT", nullptr}},
    {"Slurm",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     "SLURM_LOCALID",
     nullptr,
     {"SLURM_JOB_ID", "SLURM_STEP_ID", nullptr}},
};

std::string job_of(const Reader& reader, const Launcher& launcher) {
  std::string job = launcher.name;
  bool is_identified = false;
  for (const char* name : launcher.identity) {
    if (name == nullptr) break;
    is_identified = is_identified || reader.has(name);
    job += "|" + reader.text(name);
  }
  // Ranks on a host that have nothing else in common have one parent.
  if (!is_identified) job += "|parent " + std::to_string(getppid());
  return job;
}

// Slurm's form is "4" or "2(x3),1": tasks per node; all nodes alike unless there is a comma.
int slurm_local_size(const Reader& reader, int size) {
  const std::string counts = reader.text("SLURM_STEP_TASKS_PER_NODE");
  if (counts.empty()) return reader.number_or("SLURM_NNODES", 1, 1) == 1 ? size : 0;
  if (counts.find(',') != std::string::npos) return 0;
  return number_in(counts.substr(0, counts.find('(')), "SLURM_STEP_TASKS_PER_NODE", 1);
}

int port(const std::string& text) {
  if (const std::optional<int> port = launch::port_in(text)) return *port;
  throw UsageError("the environment variable " + std::string(launch::kStorePort) + " is no port")
      .fact("value", text)
      .hint("ports are 1 ... 65535");
}

void read_store(const Reader& reader, Place& place) {
  place.store_host = reader.text(launch::kStoreHost);
  if (reader.has(launch::kStorePort)) place.store_port = port(reader.text(launch::kStorePort));
  place.launcher_has_store = reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
}

void check(const Place& place) {
  if (place.rank < place.size && place.local_rank < place.local_size &&
      place.local_size <= place.size) {
    return;
  }
  throw UsageError("the launcher's variables do not fit each other")
      .fact("launcher", place.launcher)
      .fact("rank", std::to_string(place.rank) + " of " + std::to_string(place.size))
      .fact("on host", std::to_string(place.local_rank) + " of " + std::to_string(place.local_size))
      .hint("start the ranks by one launcher, or unset its variables to run alone");
}

}  // namespace

Place place_in(const Variables& variables) {
  const Reader reader(variables);
  Place place;
  place.backend = reader.text(launch::kBackend);
  if (reader.has(launch::kTimeout)) {
    place.timeout = std::chrono::seconds(reader.number(launch::kTimeout, 1));
  }
  place.secret = launch::secret_of(variables(launch::kSecret), variables(launch::kSecretFile));
  for (const Launcher& launcher : kLaunchers) {
    if (!reader.has(launcher.rank) || !reader.has(launcher.size)) continue;
    place.launcher = launcher.name;
    place.rank = reader.number(launcher.rank);
    place.size = reader.number(launcher.size);
    place.job = job_of(reader, launcher) + "|" + place.secret;
    const bool is_slurm = launcher.local_size == nullptr;
    place.local_size = is_slurm ? slurm_local_size(reader, place.size)
                                : reader.number_or(launcher.local_size, place.size, 1);
    if (place.local_size == 0) {
      throw UsageError("Slurm put different numbers of ranks on its nodes")
          .fact("tasks", reader.text("SLURM_STEP_TASKS_PER_NODE"))
          .hint("use --ntasks-per-node, or set " +
                join(std::vector<std::string>{launch::kRank, launch::kSize, launch::kLocalRank,
                                              launch::kLocalSize}));
    }
    place.local_rank = reader.number_or(launcher.local_rank, place.rank % place.local_size);
    read_store(reader, place);
    break;
  }
  check(place);
  return place;
}

Place place_in_environment() {
  return place_in([](const char* name) { return std::getenv(name); });
}

}  // namespace tegula::inner::comm

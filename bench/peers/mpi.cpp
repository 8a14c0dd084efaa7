// Open MPI (or another MPI) doing the work of the group "comm", by its own blocking calls on warm
// buffers: the fastest that it offers. mpirun starts it; rank 0 prints one JSON line per
// measurement.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

struct Size {
  const char* name;
  int bytes;
  int calls;   // timed together
  int rounds;  // of which the median counts
};

constexpr Size kSizes[] = {{"4KiB", 4 << 10, 300, 9}, {"64MiB", 64 << 20, 1, 7}};

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "wrong result: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

// Microseconds per call, on the slowest rank.
double time_of(const Size& size, const std::function<void()>& call) {
  std::vector<double> times;
  for (int round = -1; round < size.rounds; ++round) {  // the first one warms up
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < size.calls; ++i) call();
    const double mine = (MPI_Wtime() - start) * 1e6 / size.calls;
    double slowest = 0;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (round >= 0) times.push_back(slowest);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

void measure(const Size& size, int rank, int ranks) {
  const int count = size.bytes / static_cast<int>(sizeof(float));
  const int part = count / ranks;
  std::vector<float> whole(static_cast<std::size_t>(count), 1.0F);
  std::vector<float> result(static_cast<std::size_t>(count), 0.0F);
  const auto report = [&](const char* name, const std::function<void()>& call, float expected) {
    const double value = time_of(size, call);
    require(result[0] == expected && result[static_cast<std::size_t>(part) - 1] == expected, name);
    if (rank != 0) return;
    std::printf(
        "{\"group\": \"comm\", \"case\": \"%s %s %d ranks\", \"who\": \"mpi\", \"value\": %g, "
        "\"unit\": \"us\"}\n",
        name, size.name, ranks, value);
  };
  report(
      "all-reduce",
      [&] {
        MPI_Allreduce(whole.data(), result.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      },
      static_cast<float>(ranks));
  report(
      "all-gather",
      [&] {
        MPI_Allgather(whole.data(), part, MPI_FLOAT, result.data(), part, MPI_FLOAT,
                      MPI_COMM_WORLD);
      },
      1.0F);
  report(
      "reduce-scatter",
      [&] {
        MPI_Reduce_scatter_block(whole.data(), result.data(), part, MPI_FLOAT, MPI_SUM,
                                 MPI_COMM_WORLD);
      },
      static_cast<float>(ranks));
  report(
      "all-to-all",
      [&] {
        MPI_Alltoall(whole.data(), part, MPI_FLOAT, result.data(), part, MPI_FLOAT, MPI_COMM_WORLD);
      },
      1.0F);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (const Size& size : kSizes) {
    if (size.bytes > (1 << 20) && ranks > 4) continue;
    measure(size, rank, ranks);
  }
  MPI_Finalize();
  return 0;
}

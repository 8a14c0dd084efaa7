// Stands in for the groups above the torch line when Tegula is built without it.
#include "bench/groups.h"
#include "tegula/base/error.h"

namespace tegula::bench {

namespace {

[[noreturn]] void refuse() {
  throw UsageError("this Tegula was built without libtorch")
      .hint("build the preset dev or release");
}

}  // namespace

std::vector<Measurement> run_comm() { refuse(); }
std::vector<Measurement> run_dispatch() { refuse(); }
std::vector<Measurement> run_io() { refuse(); }
std::vector<Measurement> run_ops() { refuse(); }
std::vector<Measurement> run_redistribute() { refuse(); }
std::vector<Measurement> run_serve() { refuse(); }
std::vector<Measurement> run_train(const Selection&) { refuse(); }

}  // namespace tegula::bench

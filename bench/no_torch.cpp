// Stands in for the groups above the torch line when Tegula is built without it.
#include "bench/groups.h"
#include "tegula/base/error.h"

namespace tegula::bench {

std::vector<Measurement> run_comm() {
  throw UsageError("this Tegula was built without libtorch")
      .hint("build the preset dev or release");
}

}  // namespace tegula::bench

#include "tegula/comm/engines.h"

namespace tegula::inner::comm {

std::shared_ptr<Engine> make_mpi_engine(const EngineOptions&) {
  throw UsageError("this Tegula was built without MPI")
      .hint("install an MPI (Debian: libopenmpi-dev openmpi-bin) and build again");
}

}  // namespace tegula::inner::comm

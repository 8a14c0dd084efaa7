// Worlds of programs that have MPI already. Only where Tegula was built with MPI.
#pragma once

#include <mpi.h>

#include "tegula/comm/world.h"

namespace tegula {

// The ranks of a communicator, which all call it; it is copied, and may be freed afterwards. Groups
// on one host talk over shm, others over MPI, unless the options say otherwise. MPI must have been
// started with MPI_THREAD_MULTIPLE, and must not be finalized before the world goes.
template <>
World World::from_mpi(MPI_Comm communicator, const WorldOptions& options);

}  // namespace tegula

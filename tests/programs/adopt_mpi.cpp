// A program that has MPI already: worlds from its communicators run the whole suite of collectives,
// over shm (its ranks are on one host) and over mpi, and so does a part of its ranks by themselves.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <mpi.h>

#include <iostream>

#include "tegula/comm/mpi.h"
#include "tests/comm/ranks.h"
#include "tests/comm/suite.h"

namespace {

// Ranks that nobody seeded begin with one seed.
void check_seed(const tegula::World& world) {
  const std::uint64_t seed = at::detail::getDefaultCPUGenerator().current_seed();
  const at::Tensor all =
      world.group().all_gather(at::full({1}, static_cast<std::int64_t>(seed), at::kLong), 0);
  tegula::require(at::equal(all, all[0].expand_as(all)), "ranks begin with different seeds");
}

void run_suite(MPI_Comm communicator, const std::string& backend) {
  tegula::World world = tegula::World::from_mpi(communicator, {backend, std::nullopt});
  check_seed(world);
  for (const auto& [name, body] : tegula::suite()) {
    body(world);
    world.group().barrier();
  }
}

}  // namespace

int main(int argc, char** argv) {
  int granted = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted);
  at::set_num_threads(1);
  int code = 0;
  try {
    run_suite(MPI_COMM_WORLD, "");
    run_suite(MPI_COMM_WORLD, "mpi");
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part);  // in reverse order
    run_suite(part, "");
    run_suite(part, "mpi");
    MPI_Comm_free(&part);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    code = 1;
  }
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
  return code;
}

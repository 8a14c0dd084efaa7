# Which engines can be built: for each that may be missing there are two files, of which one is left
# out.
#   TEGULA_LEFT_OUT   a regular expression of the files not to build
#   TEGULA_HAS_MPI    whether MPI::MPI_CXX is there; TEGULA_MPI_INCLUDES: the options that find mpi.h
#   GLOO_HEADERS      the folder of gloo's headers

# gloo is inside libtorch, but the wheel lacks its headers.
find_path(GLOO_HEADERS gloo/context.h)
if(NOT GLOO_HEADERS)
  set(GLOO_HEADERS ${PROJECT_SOURCE_DIR}/tegula/comm/gloo_headers)
endif()

option(TEGULA_MPI "Build the mpi engine where an MPI is installed" ON)
set(has_mpi OFF)
if(TEGULA_MPI)
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX)
  set(has_mpi ${MPI_CXX_FOUND})
endif()
set(TEGULA_HAS_MPI ${has_mpi} CACHE INTERNAL "MPI was found")
set(TEGULA_MPI_INCLUDES "")
foreach(folder ${MPI_CXX_INCLUDE_DIRS})
  list(APPEND TEGULA_MPI_INCLUDES -isystem${folder})
endforeach()
message(STATUS "mpi engine: ${TEGULA_HAS_MPI}")

# A libtorch with NCCL says so in the compile definitions of its CUDA part.
set(has_nccl OFF)
if(TARGET torch_cuda)
  get_target_property(definitions torch_cuda INTERFACE_COMPILE_DEFINITIONS)
  if("${definitions}" MATCHES "USE_C10D_NCCL")
    set(has_nccl ON)
  endif()
endif()
message(STATUS "nccl engine: ${has_nccl}")

if(TEGULA_HAS_MPI)
  set(TEGULA_LEFT_OUT "comm/no_mpi[.]cpp$")
else()
  set(TEGULA_LEFT_OUT "comm/mpi[.](cpp|h)$")
endif()
if(has_nccl)
  string(APPEND TEGULA_LEFT_OUT "|comm/no_nccl[.]cpp$")
else()
  string(APPEND TEGULA_LEFT_OUT "|comm/nccl[.]cpp$")
endif()

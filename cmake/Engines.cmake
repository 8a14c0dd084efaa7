# Picks the file of each engine that may be missing. The file that is not picked stays listed, for
# editors, but is not compiled.
function(tegula_engine name available)
  set(left_out ${name})
  if(available)
    set(left_out no_${name})
  endif()
  set_source_files_properties(comm/${left_out}.cpp PROPERTIES HEADER_FILE_ONLY ON)
endfunction()

# gloo is inside libtorch, but the wheel lacks its headers.
find_path(GLOO_HEADERS gloo/context.h)
if(NOT GLOO_HEADERS)
  set(GLOO_HEADERS ${PROJECT_SOURCE_DIR}/tegula/comm/gloo_headers)
endif()
set_source_files_properties(comm/gloo.cpp PROPERTIES INCLUDE_DIRECTORIES "${GLOO_HEADERS}")

option(TEGULA_MPI "Build the mpi engine where an MPI is installed" ON)
if(TEGULA_MPI)
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX)
endif()
set(MPI_CXX_FOUND ${MPI_CXX_FOUND} CACHE INTERNAL "")
tegula_engine(mpi "${MPI_CXX_FOUND}")
if(MPI_CXX_FOUND)
  message(STATUS "mpi engine: ${MPI_CXX_LIBRARIES}")
  target_link_libraries(tegula PRIVATE MPI::MPI_CXX)
else()
  message(STATUS "mpi engine: none (no MPI found)")
endif()

tegula_engine(nccl OFF)

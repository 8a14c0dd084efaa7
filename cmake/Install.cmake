# Installs the libraries, their public headers, the find_package(Tegula) files and the programs.
include(CMakePackageConfigHelpers)

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Tegula)
set(targets tegula_core)
if(TEGULA_TORCH)
  list(APPEND targets tegula tegula_testing)
endif()

# FILE_SET installs the headers where they lie in the tree. A wheel cannot hold links, and does without libtegula.so.
install(TARGETS ${targets} EXPORT TegulaTargets LIBRARY NAMELINK_COMPONENT namelink FILE_SET HEADERS FILE_SET of_mpi)
install(EXPORT TegulaTargets NAMESPACE Tegula:: DESTINATION ${config_folder})
configure_package_config_file(cmake/TegulaConfig.cmake.in TegulaConfig.cmake
                              INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(TegulaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TegulaConfig.cmake ${PROJECT_BINARY_DIR}/TegulaConfigVersion.cmake
        DESTINATION ${config_folder})
if(TEGULA_TOOLS)
  install(TARGETS tegula_cli)
endif()
if(TEGULA_BENCH)
  install(TARGETS ${TEGULA_BENCH_PROGRAMS} COMPONENT bench)
  install(DIRECTORY bench/peers/ DESTINATION ${TEGULA_PEERS_FOLDER} COMPONENT bench FILES_MATCHING PATTERN "*.py")
endif()

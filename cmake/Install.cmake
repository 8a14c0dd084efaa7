# Installs the libraries, headers and the find_package(Tegula) files.
include(CMakePackageConfigHelpers)

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Tegula)
set(targets tegula_core)
if(TEGULA_TORCH)
  list(APPEND targets tegula)
endif()

# FILE_SET installs the headers where they lie in the tree.
install(TARGETS ${targets} EXPORT TegulaTargets FILE_SET HEADERS)
install(EXPORT TegulaTargets NAMESPACE Tegula:: DESTINATION ${config_folder})
configure_package_config_file(cmake/TegulaConfig.cmake.in TegulaConfig.cmake
                              INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(TegulaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TegulaConfig.cmake ${PROJECT_BINARY_DIR}/TegulaConfigVersion.cmake
        DESTINATION ${config_folder})
if(TEGULA_TOOLS)
  install(TARGETS tegula_cli tegula_bench)
endif()

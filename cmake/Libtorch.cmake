# Finds libtorch and works around three quirks of its CMake package.

set(kineto_LIBRARY c10 CACHE STRING "silences a false warning of TorchConfig.cmake")
find_package(Torch REQUIRED)
message(STATUS "libtorch ${Torch_VERSION}: ${Torch_DIR}")
if(Torch_VERSION VERSION_LESS 2.6)
  message(FATAL_ERROR "libtorch ${Torch_VERSION} is too old: Tegula needs 2.6 or newer")
endif()
if(TARGET caffe2::mkl) # carries a folder of the machine that built libtorch
  set_property(TARGET caffe2::mkl PROPERTY INTERFACE_LINK_DIRECTORIES "")
endif()

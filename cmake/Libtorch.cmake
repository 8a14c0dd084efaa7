# Finds libtorch and works around three quirks of its CMake package.

if(SKBUILD AND NOT Torch_DIR) # a wheel is for the torch that is installed, which pip hides by its variables
  execute_process(COMMAND ${Python_EXECUTABLE} -E -c
                  "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('torch').origin))"
                  OUTPUT_VARIABLE torch_package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT torch_package)
    message(FATAL_ERROR "${Python_EXECUTABLE} has no torch: install one of 2.6 ... 2.14 first, Tegula is built for it")
  endif()
  set(Torch_DIR ${torch_package}/share/cmake/Torch CACHE PATH "the folder of TorchConfig.cmake")
endif()
set(kineto_LIBRARY c10 CACHE STRING "silences a false warning of TorchConfig.cmake")
find_package(Torch REQUIRED)
message(STATUS "libtorch ${Torch_VERSION}: ${Torch_DIR}")
if(Torch_VERSION VERSION_LESS 2.6)
  message(FATAL_ERROR "libtorch ${Torch_VERSION} is too old: Tegula needs 2.6 or newer")
endif()
if(TARGET caffe2::mkl) # carries a folder of the machine that built libtorch
  set_property(TARGET caffe2::mkl PROPERTY INTERFACE_LINK_DIRECTORIES "")
endif()

# Whether the Python module can be built, and for which Python: the one whose torch we build with.
#   TEGULA_HAS_PYTHON   whether to build it
#   Python_EXECUTABLE   the interpreter; build/venv's unless given
#   TORCH_PYTHON        libtorch_python

option(TEGULA_PYTHON "Build the Python module where there is a Python that has our torch" ON)
set(TEGULA_HAS_PYTHON OFF)

set(TEGULA_VENV_PYTHON ${PROJECT_SOURCE_DIR}/build/venv/bin/python)
if(NOT Python_EXECUTABLE AND EXISTS ${TEGULA_VENV_PYTHON})
  set(Python_EXECUTABLE ${TEGULA_VENV_PYTHON})
endif()

# Fails if this Python's torch uses another libtorch_python than the given one. A torch that brings none
# (Debian's) uses that of the system, and then the versions tell.
set(TORCH_OF_PYTHON [[
import importlib.metadata, importlib.util, os, sys
folder = os.path.dirname(importlib.util.find_spec("torch").origin)
own = os.path.join(folder, "lib", "libtorch_python.so")
version = importlib.metadata.version("torch").split("+")[0]
sys.exit(not (os.path.samefile(own, sys.argv[1]) if os.path.exists(own) else version == sys.argv[2]))
]])

# Sets `reason` to why it cannot be built; empty if it can.
function(tegula_why_no_python reason)
  set(${reason} "" PARENT_SCOPE)
  if(NOT TEGULA_PYTHON)
    set(${reason} "TEGULA_PYTHON is off" PARENT_SCOPE)
  elseif(TEGULA_SANITIZE)
    set(${reason} "the interpreter knows nothing of the sanitizers" PARENT_SCOPE)
  elseif(NOT Python_Development.Module_FOUND)
    set(${reason} "no headers of Python; on Debian: apt-get install python3-dev" PARENT_SCOPE)
  elseif(NOT TORCH_PYTHON)
    set(${reason} "this libtorch has no libtorch_python" PARENT_SCOPE)
  else()
    execute_process(COMMAND ${Python_EXECUTABLE} -E -c "${TORCH_OF_PYTHON}" ${TORCH_PYTHON} ${Torch_VERSION}
                    RESULT_VARIABLE another_torch ERROR_QUIET)
    if(another_torch)
      set(${reason} "${Python_EXECUTABLE} does not have the torch of ${TORCH_INSTALL_PREFIX}" PARENT_SCOPE)
    endif()
  endif()
endfunction()

find_package(Python QUIET COMPONENTS Interpreter Development.Module)
find_library(TORCH_PYTHON torch_python PATHS ${TORCH_INSTALL_PREFIX}/lib
             ${TORCH_INSTALL_PREFIX}/lib/${CMAKE_LIBRARY_ARCHITECTURE} NO_DEFAULT_PATH)
tegula_why_no_python(no_python)
if(no_python)
  message(STATUS "python module: left out (${no_python})")
else()
  set(TEGULA_HAS_PYTHON ON)
  message(STATUS "python module: for ${Python_EXECUTABLE}")
endif()

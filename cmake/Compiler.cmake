# Warnings, sanitizers, ccache. Targets of ours opt in with tegula_compile_options(target).

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what a precompiled header needs to be cached.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()

if(TEGULA_SANITIZE)
  add_compile_options(-fsanitize=${TEGULA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TEGULA_SANITIZE})
endif()

find_program(CLANG_TIDY clang-tidy HINTS ${PROJECT_SOURCE_DIR}/build/venv/bin NO_DEFAULT_PATH)

function(tegula_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor)
  if(TEGULA_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()

# Warnings, sanitizers, ccache. Targets of ours opt in with tegula_compile_options(target).

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what a precompiled header needs to be cached. What a file depends on is taken
  # from the compiler, which spares a run of the preprocessor.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env
      CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()

if(TEGULA_SANITIZE)
  add_compile_options(-fsanitize=${TEGULA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TEGULA_SANITIZE})
endif()

function(tegula_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor)
  if(TEGULA_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()

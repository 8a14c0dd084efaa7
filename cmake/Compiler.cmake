# Warnings, sanitizers, hardening, ccache. Targets of ours opt in with tegula_compile_options(target).

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
else()
  # Against attacks, as far as it costs no time. Checked stacks do where functions are short (a mesh's group of a
  # rank: 44 -> 52 ns), so only what reads from other users and processes has them: TEGULA_CHECKED_STACKS.
  add_compile_options(-fstack-clash-protection "$<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
  add_link_options(-Wl,-z,relro,-z,now)
  set(TEGULA_CHECKED_STACKS -fstack-protector-strong)
  include(CheckPIESupported)
  check_pie_supported()
endif()

function(tegula_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor)
  if(TEGULA_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()

# Warnings, sanitizers, hardening, ccache, batches. Targets of ours opt in with tegula_compile_options(target) and
# tegula_compile_in_batches(target).

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

# Files of one folder are compiled several at a time, which takes a third of the time: most of it goes into what they
# include. So names in anonymous namespaces are unique in a folder. OFF compiles file by file, as `make lint` does.
option(TEGULA_BATCHES "Compile the files of a folder in batches" ON)
set(TEGULA_BATCH_SIZE 8)
function(tegula_compile_in_batches target)
  if(NOT TEGULA_BATCHES)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # g++ takes a source that is included for a header, in which such a member would be a mistake
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "[.]cpp$")
  foreach(source ${sources})
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(GET folder FILENAME name)
    if(NOT folder STREQUAL last_folder)
      set(last_folder ${folder})
      set(count 0)
    endif()
    math(EXPR batch "${count} / ${TEGULA_BATCH_SIZE}")
    math(EXPR count "${count} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${name}_${batch})
  endforeach()
endfunction()

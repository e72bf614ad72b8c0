# GRAPE_SANITIZE puts the named sanitizers on everything that is not preloaded: the static libraries, the tool and the
# unit tests. libgrape.so itself is then built a second time, without them, since a sanitizer's run-time library must
# come first in a process and a preloaded library comes before it. Tests that preload are for the other builds.
if(NOT GRAPE_SANITIZE)
  function(grape_without_sanitizers)
  endfunction()
  return()
endif()

list(JOIN GRAPE_SANITIZE "," GRAPE_SANITIZE_FLAG)
add_compile_options(-fsanitize=${GRAPE_SANITIZE_FLAG} -fno-sanitize-recover=all -g -O1)
add_link_options(-fsanitize=${GRAPE_SANITIZE_FLAG})

# For targets that run in processes of their own choosing (the simulated driver).
function(grape_without_sanitizers)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE -fno-sanitize=all)
    target_link_options(${target} PRIVATE -fno-sanitize=all)
  endforeach()
endfunction()

# lib/libgrape.so of a sanitized build: the ordinary one, from a build of its own below this one.
function(grape_preloaded_apart)
  set_target_properties(grape PROPERTIES EXCLUDE_FROM_ALL ON
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/sanitized)
  include(ExternalProject)
  ExternalProject_Add(grape_preloaded
    SOURCE_DIR ${PROJECT_SOURCE_DIR}
    BINARY_DIR ${PROJECT_BINARY_DIR}/preloaded
    CMAKE_ARGS
      -DCMAKE_BUILD_TYPE=Release -DGRAPE_SANITIZE= -DGRAPE_TESTS=OFF -DGRAPE_TOOLS=OFF -DGRAPE_BENCHMARKS=OFF
      -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER} -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
      -DGRAPE_CUDA_INCLUDE_DIR=${GRAPE_CUDA_INCLUDE_DIR}
      -DCMAKE_LIBRARY_OUTPUT_DIRECTORY=${PROJECT_BINARY_DIR}/lib
    BUILD_ALWAYS ON
    INSTALL_COMMAND ""
    BUILD_BYPRODUCTS ${PROJECT_BINARY_DIR}/lib/libgrape.so)
endfunction()

# GRAPE_SANITIZE puts the named sanitizers on everything that is not preloaded: the static libraries, the tool and the
# unit tests. Such a build has no libgrape.so: a sanitizer's run-time library must come first in a process, and a
# preloaded library comes before it. Tests that preload are for the other builds.
if(NOT GRAPE_SANITIZE)
  function(grape_without_sanitizers)
  endfunction()
  return()
endif()

list(JOIN GRAPE_SANITIZE "," GRAPE_SANITIZE_FLAG)
# Line tables are all that a report needs; whole debug information takes a quarter of the compiler's time.
add_compile_options(-fsanitize=${GRAPE_SANITIZE_FLAG} -fno-sanitize-recover=all -g1 -O1)
# gcc sees reads of uninitialised memory in its own library once the sanitizers' code is in between; it knows of that.
add_compile_options(-Wno-maybe-uninitialized)
add_link_options(-fsanitize=${GRAPE_SANITIZE_FLAG})

# For targets that run in processes of their own choosing (the simulated driver).
function(grape_without_sanitizers)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE -fno-sanitize=all)
    target_link_options(${target} PRIVATE -fno-sanitize=all)
  endforeach()
endfunction()

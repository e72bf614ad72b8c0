# What Grape builds on: headers of CUDA, and Debian's packages. Libraries go into libgrape.so statically and hidden.
find_package(Threads REQUIRED)

# The CUDA driver API's headers: an installed toolkit's, else those that scripts/setup took from NVIDIA's wheels. A
# toolkit counts only if it has all of them (small ones lack the profiler's).
set(GRAPE_CUDA_INCLUDE_DIR "" CACHE PATH "Folder of cuda.h, cudaTypedefs.h and cudaProfiler.h")
foreach(root "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}" /usr/local/cuda /opt/cuda ${PROJECT_SOURCE_DIR}/build/deps/cuda)
  foreach(folder ${root}/include ${root}/targets/x86_64-linux/include)
    if(NOT GRAPE_CUDA_INCLUDE_DIR AND EXISTS ${folder}/cuda.h AND EXISTS ${folder}/cudaTypedefs.h
       AND EXISTS ${folder}/cudaProfiler.h)
      set(GRAPE_CUDA_INCLUDE_DIR ${folder} CACHE PATH "Folder of cuda.h, cudaTypedefs.h and cudaProfiler.h" FORCE)
    endif()
  endforeach()
endforeach()
if(NOT GRAPE_CUDA_INCLUDE_DIR)
  message(FATAL_ERROR "No CUDA headers found. Install a CUDA toolkit, or run ./scripts/setup, or set CUDA_HOME.")
endif()
add_library(grape_cuda_headers INTERFACE)
target_include_directories(grape_cuda_headers SYSTEM INTERFACE ${GRAPE_CUDA_INCLUDE_DIR})

find_library(GRAPE_ZSTD_LIBRARY NAMES libzstd.a REQUIRED)
find_path(GRAPE_ZSTD_INCLUDE_DIR zstd.h REQUIRED)
# Debian's library goes into a shared one except for its dictionary trainer, which takes `stderr` to lie in the program.
# A copy of it calls that by a name of ours (compressor/store/codec.cc); it writes nothing there unless told to.
set(GRAPE_ZSTD_SHARED ${CMAKE_BINARY_DIR}/deps/libzstd_shared.a)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/deps)
execute_process(COMMAND ${CMAKE_OBJCOPY} --redefine-sym stderr=grape_zstd_stderr ${GRAPE_ZSTD_LIBRARY} ${GRAPE_ZSTD_SHARED}
  RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "objcopy (binutils) cannot copy ${GRAPE_ZSTD_LIBRARY}: ${failed}")
endif()
add_library(grape_zstd INTERFACE)
target_link_libraries(grape_zstd INTERFACE ${GRAPE_ZSTD_SHARED})
target_include_directories(grape_zstd SYSTEM INTERFACE ${GRAPE_ZSTD_INCLUDE_DIR})

find_path(GRAPE_XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
add_library(grape_xxhash INTERFACE)
target_include_directories(grape_xxhash SYSTEM INTERFACE ${GRAPE_XXHASH_INCLUDE_DIR})
target_compile_definitions(grape_xxhash INTERFACE XXH_INLINE_ALL)

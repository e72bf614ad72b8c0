# PyTorch's own CUDA build on the simulated driver; see README.md.

# What `python` has: HOST_TORCH_CUDA, its CUDA's major version, and HOST_TORCH_SITE, the folder of its packages. Empty: it
# has no PyTorch that was built for CUDA 12 or 13.
function(grape_find_host_torch python)
  execute_process(
    COMMAND ${python} -c
      "import torch, os; print('%s;%s' % (torch.version.cuda or '', os.path.dirname(os.path.dirname(torch.__file__))))"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  list(LENGTH found parts)
  if(failed OR NOT parts EQUAL 2)
    message(STATUS "host_torch: ${python} has no PyTorch that was built for CUDA")
    return()
  endif()
  list(GET found 0 cuda)
  list(GET found 1 site)
  string(REGEX MATCH "^[0-9]+" major "${cuda}")
  if(NOT major MATCHES "^1[23]$")
    message(STATUS "host_torch: PyTorch for CUDA ${cuda}; the runtime here is that of CUDA 12 and 13")
    return()
  endif()
  set(HOST_TORCH_CUDA ${major} PARENT_SCOPE)
  set(HOST_TORCH_SITE ${site} PARENT_SCOPE)
endfunction()

# Builds the runtime and the operators for the PyTorch of `python` into lib/host_torch<suffix>, with an interpreter that
# uses them. Sets HOST_TORCH_FOLDER; empty: it cannot be.
function(grape_add_host_torch python suffix)
  set(HOST_TORCH_FOLDER "" PARENT_SCOPE)
  grape_find_host_torch(${python})
  if(NOT HOST_TORCH_CUDA)
    return()
  endif()
  set(source ${PROJECT_SOURCE_DIR}/tests/host_torch)
  set(HOST_TORCH_FOLDER ${PROJECT_BINARY_DIR}/lib/host_torch${suffix})
  set(HOST_TORCH_PACKAGES ${source}/packages)
  set(HOST_TORCH_PYTHON ${python})
  set(SIMCUDA_FOLDER ${PROJECT_BINARY_DIR}/lib/simcuda)
  configure_file(${source}/cudart.map.in ${HOST_TORCH_FOLDER}/cudart.map @ONLY)

  # The headers of CUDA 12 come with its PyTorch, as those of its libraries do.
  add_library(host_torch_headers${suffix} INTERFACE)
  if(HOST_TORCH_CUDA EQUAL 13)
    target_link_libraries(host_torch_headers${suffix} INTERFACE grape_cuda_headers)
  else()
    file(GLOB headers ${HOST_TORCH_SITE}/nvidia/*/include)
    target_include_directories(host_torch_headers${suffix} SYSTEM INTERFACE ${headers})
  endif()

  add_library(host_cudart${suffix} SHARED ${source}/cudart.cc ${source}/cudart_unused.cc ${source}/driver.cc)
  target_link_libraries(host_cudart${suffix} PRIVATE host_torch_headers${suffix} ${CMAKE_DL_LIBS})
  target_compile_definitions(host_cudart${suffix} PRIVATE HOST_TORCH_CUDA=${HOST_TORCH_CUDA})
  target_link_options(host_cudart${suffix} PRIVATE -Wl,--version-script=${HOST_TORCH_FOLDER}/cudart.map)
  set_target_properties(host_cudart${suffix} PROPERTIES
    CXX_VISIBILITY_PRESET default OUTPUT_NAME cudart VERSION ${HOST_TORCH_CUDA} SOVERSION ${HOST_TORCH_CUDA}
    LINK_DEPENDS ${HOST_TORCH_FOLDER}/cudart.map LIBRARY_OUTPUT_DIRECTORY ${HOST_TORCH_FOLDER})

  set(torch ${HOST_TORCH_SITE}/torch)
  add_library(host_torch${suffix} SHARED
    ${source}/driver.cc ${source}/operators.cc ${source}/replacements.cc ${source}/values.cc)
  target_include_directories(host_torch${suffix} SYSTEM PRIVATE ${torch}/include ${torch}/include/torch/csrc/api/include)
  target_link_libraries(host_torch${suffix} PRIVATE host_torch_headers${suffix} ${CMAKE_DL_LIBS})
  foreach(name torch_cuda c10_cuda torch_cpu c10)
    target_link_libraries(host_torch${suffix} PRIVATE ${torch}/lib/lib${name}.so)
  endforeach()
  target_compile_options(host_torch${suffix} PRIVATE -O1 -g0)  # most of it is PyTorch's templates
  target_link_options(host_torch${suffix} PRIVATE -Wl,--allow-shlib-undefined)
  set_target_properties(host_torch${suffix} PROPERTIES
    CXX_STANDARD 20  # PyTorch's headers ask for it from some version on
    OUTPUT_NAME host_torch LIBRARY_OUTPUT_DIRECTORY ${HOST_TORCH_FOLDER})

  configure_file(${source}/python.sh.in ${HOST_TORCH_FOLDER}/python @ONLY)
  file(CHMOD ${HOST_TORCH_FOLDER}/python
    PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  set(HOST_TORCH_FOLDER ${HOST_TORCH_FOLDER} PARENT_SCOPE)
endfunction()

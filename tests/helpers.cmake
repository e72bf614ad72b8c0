# A test's label is the path of its folder: `ctest -L shim` runs the tests of all rooms of shim.
function(grape_label_of folder variable)
  file(RELATIVE_PATH label ${PROJECT_SOURCE_DIR}/tests ${folder})
  set(${variable} ${label} PARENT_SCOPE)
endfunction()

# After cmake_parse_arguments: the label of the folder, and two minutes, where nothing else is said.
macro(grape_set_defaults)
  if(NOT arg_LABEL)
    grape_label_of(${CMAKE_CURRENT_SOURCE_DIR} arg_LABEL)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
endmacro()

# grape_add_gtest(NAME [LABEL folder] [PREFIX prefix] [TIMEOUT seconds] [ENVIRONMENT NAME=VALUE...] SOURCES file...
#                 LIBRARIES library...)
#   Libraries without a main function of their own get GoogleTest's.
function(grape_add_gtest name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL;PREFIX;TIMEOUT" "ENVIRONMENT;SOURCES;LIBRARIES")
  grape_set_defaults()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} GTest::gtest GTest::gtest_main Threads::Threads)
  if(arg_ENVIRONMENT)  # of an ENVIRONMENT with several variables gtest_discover_tests keeps the first
    set_target_properties(${name} PROPERTIES CROSSCOMPILING_EMULATOR "${CMAKE_COMMAND};-E;env;${arg_ENVIRONMENT}")
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${arg_PREFIX}" PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT})
endfunction()

# grape_add_script(NAME [LABEL folder] [TIMEOUT seconds] [ENVIRONMENT NAME=VALUE...] COMMAND word...)
#   A test that runs a command. Its exit status 77 means that it was skipped.
function(grape_add_script name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL;TIMEOUT" "ENVIRONMENT;COMMAND")
  grape_set_defaults()
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES
    LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} SKIP_RETURN_CODE 77 ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()

# grape_add_simulated_test(NAME SCRIPT file [LABEL folder] [TIMEOUT seconds] [ARGUMENTS word...])
#   A script that runs programs on the simulated driver and the simulated PyTorch, with libgrape.so preloaded.
function(grape_add_simulated_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SCRIPT" "ARGUMENTS")
  grape_add_script(${name} ${arg_UNPARSED_ARGUMENTS}
    COMMAND ${GRAPE_TEST_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/${arg_SCRIPT} --grape $<TARGET_FILE:grape>
      --simcuda ${PROJECT_BINARY_DIR}/lib/simcuda --sim-torch ${PROJECT_BINARY_DIR}/lib/sim_torch ${arg_ARGUMENTS})
endfunction()

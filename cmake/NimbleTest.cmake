include_guard()
include(GoogleTest)

# nimble_add_test(<name> SOURCES <file>... [LIBRARIES <target>...] [LABEL <label>] [ONE_PROCESS])
#
# A GoogleTest program and its CTest tests. Labels with a meaning: `gpu` needs a CUDA device (and skips itself without
# one, see tests/support/gpu_test.h), `full` runs with `make test-full` only.
#
# Each case is a CTest test in a process of its own, unless ONE_PROCESS: loading libtorch takes longer than most tests,
# so a program that links it runs all its cases at once. `make test` still counts them one by one, from the XML.
function(nimble_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 test "ONE_PROCESS" "LABEL" "SOURCES;LIBRARIES")
  add_executable(${name} ${test_SOURCES})
  target_link_libraries(${name} PRIVATE ${test_LIBRARIES} nimble_compile_options GTest::gtest_main)
  if(test_ONE_PROCESS)
    add_test(NAME ${name} COMMAND ${name} --gtest_output=xml:${CMAKE_BINARY_DIR}/test-results/${name}.xml)
    set_tests_properties(${name} PROPERTIES LABELS "${test_LABEL}")
  else()
    gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "${test_LABEL}")
  endif()
endfunction()

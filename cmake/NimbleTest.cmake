include_guard()
include(GoogleTest)

# nimble_add_test(<name> SOURCES <file>... [LIBRARIES <target>...] [LABEL <label>] [PROCESSES <count>])
#
# A GoogleTest program and its CTest tests. Labels with a meaning: `gpu` needs a CUDA device (and skips itself without
# one, see tests/support/gpu_test.h), `full` runs with `make test-full` only.
#
# Each case is a CTest test in a process of its own, unless PROCESSES says among how many all cases are divided: loading
# libtorch takes longer than most tests. `make test` still counts them one by one, from the XML.
function(nimble_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 test "" "LABEL;PROCESSES" "SOURCES;LIBRARIES")
  add_executable(${name} ${test_SOURCES})
  target_link_libraries(${name} PRIVATE ${test_LIBRARIES} nimble_compile_options GTest::gtest_main)
  if(test_PROCESSES)
    math(EXPR last "${test_PROCESSES} - 1")
    foreach(process RANGE ${last})
      set(part ${name})
      if(last)
        set(part ${name}.${process})
      endif()
      add_test(NAME ${part} COMMAND ${name} --gtest_output=xml:${CMAKE_BINARY_DIR}/test-results/${part}.xml)
      set_tests_properties(${part} PROPERTIES LABELS "${test_LABEL}"
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${test_PROCESSES};GTEST_SHARD_INDEX=${process}")
    endforeach()
  else()
    gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "${test_LABEL}")
  endif()
endfunction()

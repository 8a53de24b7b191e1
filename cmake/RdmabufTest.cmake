# SPDX-License-Identifier: BSD-3-Clause
include(GoogleTest)

# rdmabuf_add_test(name SOURCES file... LABEL tier [LIBS target...])
#
# A GoogleTest program linked with rdmabuf, and a ctest test for each TEST in it, called <name>.<suite>.<test>.
# The label is the tier that runs it: unit, providers, kernel, package, compile_fail, readme or benchmark.
function(rdmabuf_add_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL" "SOURCES;LIBS")
    add_executable(${name} ${arg_SOURCES})
    rdmabuf_configure_target(${name})
    target_link_libraries(${name} PRIVATE rdmabuf::rdmabuf ${arg_LIBS} GTest::gmock_main)
    # PRE_TEST: what a broken test program says is a test's failure and not the build's. Nothing here
    # takes a minute, except on a machine with more work than cores.
    gtest_discover_tests(
        ${name}
        TEST_PREFIX ${name}.
        DISCOVERY_MODE PRE_TEST
        DISCOVERY_TIMEOUT 120
        PROPERTIES LABELS ${arg_LABEL} TIMEOUT 300)
endfunction()

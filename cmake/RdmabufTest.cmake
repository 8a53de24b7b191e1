# SPDX-License-Identifier: BSD-3-Clause
include(GoogleTest)

# rdmabuf_add_test(name SOURCES file... LABEL tier [LIBS target...])
#
# A GoogleTest program linked with rdmabuf, and a ctest test for each TEST in it, called
# <name>.<suite>.<test>. The label is the tier that runs it: unit or providers, or benchmark.
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

# rdmabuf_add_kernel_test(name [SOURCES file... [LIBS target...]] [COMMAND argument...])
#
# A ctest test called kernel.<name> that runs a command inside the guest of tests/kernel. With SOURCES
# the command is a GoogleTest program, built from them: all its tests run in one boot.
function(rdmabuf_add_kernel_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS;COMMAND")
    if(arg_SOURCES)
        add_executable(${name} ${arg_SOURCES})
        rdmabuf_configure_target(${name})
        target_link_libraries(${name} PRIVATE rdmabuf::rdmabuf ${arg_LIBS} GTest::gmock_main)
        list(PREPEND arg_COMMAND $<TARGET_FILE:${name}>)
    endif()
    add_test(NAME kernel.${name} COMMAND "${PROJECT_SOURCE_DIR}/tests/kernel/run" -- ${arg_COMMAND})
    # One guest at a time: it emulates a machine, and measures time on it. The rig ends a guest that
    # hangs; the limit here leaves it the time to fetch a kernel before. What the guest lacks is a fault of
    # the rig, so skipping there is failing.
    set_tests_properties(
        kernel.${name}
        PROPERTIES LABELS kernel RUN_SERIAL ON TIMEOUT 1500
                   FAIL_REGULAR_EXPRESSION "\\[  SKIPPED \\];\\[  PASSED  \\] 0 tests")
endfunction()

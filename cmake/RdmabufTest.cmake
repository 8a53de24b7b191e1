# SPDX-License-Identifier: BSD-3-Clause
include(GoogleTest)

# The label of a test is its tier. scripts/test builds the target `gate` and runs the tests of these labels, and
# scripts/test --all builds and runs everything. CMakePresets.json has the same list.
set(RDMABUF_GATE_LABELS unit providers softverbs transport conformance compile_fail package links)
add_custom_target(gate)

option(RDMABUF_PRECOMPILED_HEADERS "Precompile the headers that most tests include" OFF)

# rdmabuf_precompile_headers(name label)
#
# With RDMABUF_PRECOMPILED_HEADERS, the test programs of a tier share one precompiled header of GoogleTest, the standard
# library and what is tested. The preset `clang`, in which scripts/check compiles, has it off: there a missing #include is an
# error.
function(rdmabuf_precompile_headers name label)
    if(NOT RDMABUF_PRECOMPILED_HEADERS)
        return()
    endif()
    if(label STREQUAL "softverbs")
        set(header infiniband/verbs.h)
    elseif(label STREQUAL "transport")
        set(header rdmabuf/transport.hpp)
    else()
        set(label library)
        set(header rdmabuf/rdmabuf.hpp)
    endif()
    set(precompiled rdmabuf_precompiled_for_${label})
    if(NOT TARGET ${precompiled})
        set(source "${PROJECT_BINARY_DIR}/${precompiled}.cpp")
        file(CONFIGURE OUTPUT "${source}" CONTENT "")
        add_executable(${precompiled} "${source}")
        rdmabuf_configure_target(${precompiled})
        target_link_libraries(${precompiled} PRIVATE rdmabuf::rdmabuf GTest::gmock_main)
        if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
            # ccache keeps the results of files that use the header only if it has no time stamp in it.
            target_compile_options(${precompiled} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
        endif()
        target_precompile_headers(
            ${precompiled} PRIVATE <${header}> <algorithm> <array> <chrono> <filesystem>
            <functional> <map> <memory> <mutex> <optional> <set> <span> <string> <thread> <utility>
            <vector> <gmock/gmock.h> <gtest/gtest.h>)
    endif()
    target_precompile_headers(${name} REUSE_FROM ${precompiled})
    # g++ takes the header only where the same macros are defined.
    target_link_libraries(${name} PRIVATE GTest::gtest)
endfunction()

# rdmabuf_add_test(name SOURCES file... LABEL tier [LIBS target...])
#
# A GoogleTest program linked with rdmabuf, and its tests for ctest. The label is the tier that runs them. Each program has a
# rendezvous directory of softverbs of its own, so that processes of other tests, or of the user, do not connect to it.
function(rdmabuf_add_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL" "SOURCES;LIBS")
    add_executable(${name} ${arg_SOURCES})
    rdmabuf_configure_target(${name})
    target_link_libraries(${name} PRIVATE rdmabuf::rdmabuf ${arg_LIBS} GTest::gmock_main)
    target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/support")
    rdmabuf_precompile_headers(${name} ${arg_LABEL})
    if(arg_LABEL IN_LIST RDMABUF_GATE_LABELS)
        add_dependencies(gate ${name})
    endif()
    rdmabuf_register_tests(${name} ${name} ${arg_LABEL})
endfunction()

# rdmabuf_register_tests(program prefix label [PROPERTY VALUE...])
#
# The tests of a GoogleTest program for ctest, called <prefix>.<suite>.<test>, with more properties. Sanitizers take longer
# to start a process than to run most tests, so with them all tests of a program are one test, called <prefix>, in one
# process; scripts/lib/junit takes the results from the file that the program writes.
function(rdmabuf_register_tests program prefix label)
    set(properties ${ARGN} LABELS ${label} ENVIRONMENT SOFTVERBS_DIR=${CMAKE_CURRENT_BINARY_DIR}/${program}.softverbs)
    if(RDMABUF_SANITIZE)
        target_link_libraries(${program} PRIVATE rdmabuf_sanitizer_options)
        # A program that ends before its last test, even with status 0, writes no file.
        set(report "${PROJECT_BINARY_DIR}/test-programs/${prefix}.xml")
        add_test(NAME ${prefix} COMMAND sh -c "rm -f '${report}' && \"$1\" '--gtest_output=xml:${report}' && test -s '${report}'" sh
                                        $<TARGET_FILE:${program}>)
        set_tests_properties(${prefix} PROPERTIES ${properties} TIMEOUT 1200)
        if(label STREQUAL "transport")
            # These take the longest, so they are begun first.
            set_tests_properties(${prefix} PROPERTIES COST 1)
        endif()
    else()
        # PRE_TEST: what a broken test program says is a test's failure and not the build's. Nothing here
        # takes a minute, except on a machine with more work than cores.
        gtest_discover_tests(
            ${program}
            TEST_PREFIX ${prefix}.
            # Values can have addresses in their text, which would differ in each run.
            NO_PRETTY_VALUES
            DISCOVERY_MODE PRE_TEST
            DISCOVERY_TIMEOUT 120
            PROPERTIES ${properties} TIMEOUT 300)
        # In place of the tests of a program that is not built there is one, which fails. CMake gives it no label, without which
        # `ctest -L` leaves it out.
        set(label_file "${CMAKE_CURRENT_BINARY_DIR}/${prefix}.not_built.cmake")
        file(
            GENERATE
            OUTPUT "${label_file}"
            CONTENT
                "if(NOT EXISTS [==[$<TARGET_FILE:${program}>]==])
  set_tests_properties(${program}_NOT_BUILT PROPERTIES LABELS ${label})
endif()
")
        set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${label_file}")
    endif()
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

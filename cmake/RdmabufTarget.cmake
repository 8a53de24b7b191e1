# SPDX-License-Identifier: BSD-3-Clause

# Sanitizers change the ABI of what they touch, so the whole build has them or none of it.
if(RDMABUF_SANITIZE)
    add_compile_options(-fsanitize=${RDMABUF_SANITIZE} -fno-sanitize-recover=all
                        -fno-omit-frame-pointer)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
        # The library declares the handles of vendors' drivers as types of its own, so the type of a
        # driver's function and that of the pointer through which it is called differ in their names.
        add_compile_options(-fno-sanitize=function)
    endif()
    add_link_options(-fsanitize=${RDMABUF_SANITIZE})
endif()

# What every C++ target of this project is compiled with.
function(rdmabuf_configure_target target)
    target_compile_features(${target} PUBLIC cxx_std_20)
    set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow
                                             $<$<BOOL:${RDMABUF_WERROR}>:-Werror>)
endfunction()

# rdmabuf_build_in_batches(target)
# With RDMABUF_BATCHES, compiles several sources of the target at once, because most of the time is spent on the headers.
option(RDMABUF_BATCHES "Compile sources of the libraries and the command in batches" OFF)
set(RDMABUF_BATCH_SIZE
    8
    CACHE STRING "With RDMABUF_BATCHES: sources in a batch. More take less processor time, but fewer processors")
function(rdmabuf_build_in_batches target)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ${RDMABUF_BATCHES} UNITY_BUILD_BATCH_SIZE ${RDMABUF_BATCH_SIZE})
endfunction()

# Hides the symbols of a target that is, or is a part of, a library, except those marked RDMABUF_EXPORT.
function(rdmabuf_hide_symbols target)
    set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# rdmabuf_add_program(name SOURCES file... [LIBS target...])
# An executable linked with rdmabuf: an example or a benchmark.
function(rdmabuf_add_program name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
    add_executable(${name} ${arg_SOURCES})
    rdmabuf_configure_target(${name})
    target_link_libraries(${name} PRIVATE rdmabuf::rdmabuf ${arg_LIBS})
endfunction()

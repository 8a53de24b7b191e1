# SPDX-License-Identifier: BSD-3-Clause

# rdmabuf_add_provider(name SOURCES file... [REQUIRES_HEADER header [HEADER_PATH_SUFFIXES dir...]])
#
# Adds the exporter in providers/<name> to the library. It is compiled as rdmabuf_provider_<name>, its
# public face is include/rdmabuf/providers/<name>.hpp, and RDMABUF_PROVIDER_<NAME> chooses it:
#   AUTO  in, when the system has REQUIRES_HEADER or none is required (the default)
#   ON    in, or the configuration fails
#   OFF   out
# The outcome is RDMABUF_HAVE_PROVIDER_<NAME>, 0 or 1, in rdmabuf/detail/config.hpp.
function(rdmabuf_add_provider name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "REQUIRES_HEADER" "SOURCES;HEADER_PATH_SUFFIXES")
    string(TOUPPER ${name} upper)
    set(option RDMABUF_PROVIDER_${upper})
    set(${option}
        AUTO
        CACHE STRING "The ${name} exporter: AUTO, ON or OFF")
    set_property(CACHE ${option} PROPERTY STRINGS AUTO ON OFF)

    set(have 0)
    if(NOT arg_REQUIRES_HEADER)
        if("${${option}}" STREQUAL "AUTO" OR ${option})
            set(have 1)
        endif()
    elseif("${${option}}" STREQUAL "AUTO" OR ${option})
        # Searched again at each configuration for as long as it is not found.
        find_path(RDMABUF_${upper}_INCLUDE_DIR NAMES ${arg_REQUIRES_HEADER}
                  PATH_SUFFIXES ${arg_HEADER_PATH_SUFFIXES})
        mark_as_advanced(RDMABUF_${upper}_INCLUDE_DIR)
        if(RDMABUF_${upper}_INCLUDE_DIR)
            set(have 1)
        elseif("${${option}}" STREQUAL "AUTO")
            message(STATUS "rdmabuf: no ${name} exporter, since <${arg_REQUIRES_HEADER}> is missing")
        else()
            message(FATAL_ERROR "${option} is ${${option}}, but <${arg_REQUIRES_HEADER}> is missing")
        endif()
    endif()
    set_property(GLOBAL APPEND_STRING PROPERTY rdmabuf_provider_defines
                                               "#define RDMABUF_HAVE_PROVIDER_${upper} ${have}\n")
    if(NOT have)
        return()
    endif()

    set(target rdmabuf_provider_${name})
    add_library(${target} OBJECT ${arg_SOURCES})
    rdmabuf_configure_target(${target})
    rdmabuf_build_in_batches(${target})
    rdmabuf_hide_symbols(${target})
    target_include_directories(
        ${target} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/include"
                          "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/providers")
    if(arg_REQUIRES_HEADER)
        target_include_directories(${target} SYSTEM PRIVATE "${RDMABUF_${upper}_INCLUDE_DIR}")
    endif()
    target_link_libraries(${target} PRIVATE PkgConfig::libibverbs)

    # The objects rather than the target: a static rdmabuf would otherwise have to export it.
    target_sources(rdmabuf PRIVATE $<TARGET_OBJECTS:${target}>)
    if(TARGET rdmabuf_archive)
        target_sources(rdmabuf_archive PRIVATE $<TARGET_OBJECTS:${target}>)
    endif()
    target_sources(
        rdmabuf PUBLIC FILE_SET HEADERS FILES
                       "${PROJECT_SOURCE_DIR}/include/rdmabuf/providers/${name}.hpp")
endfunction()

# Call once, after the last rdmabuf_add_provider().
function(rdmabuf_write_provider_config)
    get_property(RDMABUF_PROVIDER_DEFINES GLOBAL PROPERTY rdmabuf_provider_defines)
    get_target_property(type rdmabuf TYPE)
    set(RDMABUF_SHARED_LIBRARY 0)
    if(type STREQUAL "SHARED_LIBRARY")
        set(RDMABUF_SHARED_LIBRARY 1)
    endif()
    set(generated_dir "${PROJECT_BINARY_DIR}/include")
    configure_file("${PROJECT_SOURCE_DIR}/cmake/config.hpp.in"
                   "${generated_dir}/rdmabuf/detail/config.hpp" @ONLY)
    target_sources(
        rdmabuf PUBLIC FILE_SET HEADERS BASE_DIRS "${generated_dir}" FILES
                       "${generated_dir}/rdmabuf/detail/config.hpp")
endfunction()

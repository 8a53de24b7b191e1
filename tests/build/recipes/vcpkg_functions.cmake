# SPDX-License-Identifier: BSD-3-Clause

# Runs the port in PORTFILE with replacements of vcpkg's functions, for the features in the list FEATURES. Prints the
# source directory and the options with which the port configures the project.
cmake_minimum_required(VERSION 3.25)
set(CURRENT_PACKAGES_DIR "/nonexistent")
set(PORT rdmabuf)

function(vcpkg_check_features)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" OUT_FEATURE_OPTIONS FEATURES)
    set(options "")
    while(arg_FEATURES)
        list(POP_FRONT arg_FEATURES feature option)
        if(feature IN_LIST FEATURES)
            list(APPEND options -D${option}=ON)
        else()
            list(APPEND options -D${option}=OFF)
        endif()
    endwhile()
    set(${arg_OUT_FEATURE_OPTIONS} ${options} PARENT_SCOPE)
endfunction()

function(vcpkg_cmake_configure)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" SOURCE_PATH OPTIONS)
    message("${arg_SOURCE_PATH}")
    foreach(option IN LISTS arg_OPTIONS)
        message("${option}")
    endforeach()
endfunction()

function(vcpkg_find_acquire_program program)
    set(${program} /usr/bin/${program} PARENT_SCOPE)
endfunction()

foreach(
    name IN
    ITEMS vcpkg_cmake_install
          vcpkg_cmake_config_fixup
          vcpkg_copy_tools
          vcpkg_fixup_pkgconfig
          vcpkg_install_copyright)
    cmake_language(EVAL CODE "function(${name})\nendfunction()")
endforeach()

include("${PORTFILE}")

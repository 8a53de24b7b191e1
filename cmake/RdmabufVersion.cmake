# SPDX-License-Identifier: BSD-3-Clause

# Sets ${result} to the "major.minor.patch" that the macros in a header spell out, so that the header
# stays the one place where the version is written.
function(rdmabuf_read_version header result)
    # A changed header must be read again.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${header}")
    set(parts)
    foreach(part MAJOR MINOR PATCH)
        file(STRINGS "${header}" line REGEX "^#define RDMABUF_VERSION_${part} [0-9]+$")
        if(NOT line MATCHES "([0-9]+)$")
            message(FATAL_ERROR "${header} does not define RDMABUF_VERSION_${part} as a number")
        endif()
        list(APPEND parts ${CMAKE_MATCH_1})
    endforeach()
    list(JOIN parts "." version)
    set(${result}
        ${version}
        PARENT_SCOPE)
endfunction()

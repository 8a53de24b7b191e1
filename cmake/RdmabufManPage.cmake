# SPDX-License-Identifier: BSD-3-Clause

# The man pages of section 7 are written in Markdown, and help2man makes those of section 1.
set(RDMABUF_MAN_PAGES
    AUTO
    CACHE STRING "Make man pages: AUTO (those whose program, go-md2man or help2man, is installed), ON or OFF")
set_property(CACHE RDMABUF_MAN_PAGES PROPERTY STRINGS AUTO ON OFF)
if(NOT RDMABUF_MAN_PAGES STREQUAL "OFF")
    find_program(RDMABUF_HELP2MAN help2man)
    find_program(RDMABUF_GO_MD2MAN go-md2man)
    mark_as_advanced(RDMABUF_HELP2MAN RDMABUF_GO_MD2MAN)
    if(NOT RDMABUF_HELP2MAN OR NOT RDMABUF_GO_MD2MAN)
        if(RDMABUF_MAN_PAGES STREQUAL "AUTO")
            message(STATUS "rdmabuf: some man pages are not made, since help2man or go-md2man is missing")
        else()
            message(FATAL_ERROR "RDMABUF_MAN_PAGES is ${RDMABUF_MAN_PAGES}, but help2man or go-md2man is missing")
        endif()
    endif()
endif()

# All man pages, of section 1, too.
add_custom_target(rdmabuf_man_pages ALL)

# rdmabuf_add_man_page(source [COMPONENT component])
#
# Converts <name>.7.md to the man page <name>.7 and installs it. Does nothing if RDMABUF_MAN_PAGES is OFF, or
# AUTO without go-md2man.
function(rdmabuf_add_man_page source)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "COMPONENT" "")
    if(RDMABUF_MAN_PAGES STREQUAL "OFF" OR NOT RDMABUF_GO_MD2MAN)
        return()
    endif()
    cmake_path(ABSOLUTE_PATH source)
    cmake_path(GET source STEM LAST_ONLY page)
    set(markdown "${CMAKE_CURRENT_BINARY_DIR}/man7/${page}.md")
    set(output "${CMAKE_CURRENT_BINARY_DIR}/man7/${page}")
    # go-md2man requires the title in the first line, where the source has its licence.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
    file(READ "${source}" text)
    string(REGEX REPLACE "^<!--[^\n]*\n" "" text "${text}")
    file(CONFIGURE OUTPUT "${markdown}" CONTENT "${text}" @ONLY)
    add_custom_command(
        OUTPUT "${output}"
        COMMAND "${RDMABUF_GO_MD2MAN}" -in "${markdown}" -out "${output}"
        DEPENDS "${markdown}"
        VERBATIM)
    add_custom_target(man_page_${page} DEPENDS "${output}")
    add_dependencies(rdmabuf_man_pages man_page_${page})
    if(RDMABUF_INSTALL)
        set(component)
        if(arg_COMPONENT)
            set(component COMPONENT ${arg_COMPONENT})
        endif()
        install(FILES "${output}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man7" ${component})
    endif()
endfunction()

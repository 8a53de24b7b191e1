# SPDX-License-Identifier: BSD-3-Clause

# CPack runs this script after it has installed the components to CPACK_TEMPORARY_DIRECTORY/<component>. As debhelper
# does, it adds the changelog, the licence and the overrides for lintian to each package, and compresses manual pages.
# It also writes control files: symbols and shlibs, from which other packages derive their dependency on the library, and
# triggers.
find_program(GZIP gzip REQUIRED)
find_program(DPKG_GENSYMBOLS dpkg-gensymbols REQUIRED)
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
    string(TOUPPER ${component} upper)
    set(package ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
    set(share "${CPACK_TEMPORARY_DIRECTORY}/${component}/usr/share")
    set(directory "${share}/doc/${package}")
    file(MAKE_DIRECTORY "${directory}")
    file(COPY "${CPACK_RDMABUF_DEBIAN_DIR}/copyright" "${CPACK_RDMABUF_DEBIAN_DIR}/changelog" DESTINATION "${directory}")
    execute_process(COMMAND "${GZIP}" -9nf "${directory}/changelog" COMMAND_ERROR_IS_FATAL ANY)
    file(GLOB manual_pages "${share}/man/man*/*[0-9]")
    foreach(page IN LISTS manual_pages)
        execute_process(COMMAND "${GZIP}" -9nf "${page}" COMMAND_ERROR_IS_FATAL ANY)
    endforeach()
    set(overrides "${CPACK_RDMABUF_DEBIAN_DIR}/${package}.lintian-overrides")
    if(EXISTS "${overrides}")
        file(MAKE_DIRECTORY "${share}/lintian/overrides")
        configure_file("${overrides}" "${share}/lintian/overrides/${package}" COPYONLY)
    endif()
endforeach()

file(REMOVE_RECURSE "${CPACK_RDMABUF_CONTROL_FILES}")
file(MAKE_DIRECTORY "${CPACK_RDMABUF_CONTROL_FILES}")
file(WRITE "${CPACK_RDMABUF_CONTROL_FILES}/triggers" "activate-noawait ldconfig\n")
# dpkg-gensymbols reads debian/control and debian/<package>.symbols.
file(CREATE_LINK "${CPACK_RDMABUF_DEBIAN_DIR}" "${CPACK_RDMABUF_CONTROL_FILES}/debian" SYMBOLIC)
set(version ${CPACK_PACKAGE_VERSION})

# write_symbols(component library): the control files symbols and shlibs of the package with a shared library.
function(write_symbols component library)
    string(TOUPPER ${component} upper)
    set(package ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
    file(MAKE_DIRECTORY "${CPACK_RDMABUF_CONTROL_FILES}/${component}")
    execute_process(
        COMMAND "${DPKG_GENSYMBOLS}" -c4 -p${package} -v${version} "-P${CPACK_TEMPORARY_DIRECTORY}/${component}"
                -O${component}/symbols
        WORKING_DIRECTORY "${CPACK_RDMABUF_CONTROL_FILES}" COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCH "[0-9.]+$" soversion "${package}")
    file(WRITE "${CPACK_RDMABUF_CONTROL_FILES}/${component}/shlibs"
         "${library} ${soversion} ${package} (>= ${version})\n")
endfunction()
write_symbols(runtime librdmabuf)
write_symbols(runtime_c librdmabuf_c)

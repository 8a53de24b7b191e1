# SPDX-License-Identifier: BSD-3-Clause

# Installs the build in BUILD_DIR to STAGING, then moves that to PREFIX: whatever the package knows by
# an absolute path breaks here. Installs the COMPONENTS and checks that their headers are in the folder
# HEADERS of INCLUDEDIR, and no others.
file(REMOVE_RECURSE "${STAGING}" "${PREFIX}")
foreach(component IN LISTS COMPONENTS)
    execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${STAGING}" --component "${component}"
                            COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(RENAME "${STAGING}" "${PREFIX}")
file(
    GLOB headers
    RELATIVE "${PREFIX}/${INCLUDEDIR}"
    "${PREFIX}/${INCLUDEDIR}/*")
if(NOT headers STREQUAL HEADERS)
    message(FATAL_ERROR "the components ${COMPONENTS} install these headers: ${headers}")
endif()

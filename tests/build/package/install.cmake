# SPDX-License-Identifier: BSD-3-Clause

# Installs the build in BUILD_DIR to STAGING, then moves that to PREFIX: whatever the package knows by
# an absolute path breaks here. Installs the component COMPONENT and checks that its headers are in
# the folder HEADERS of INCLUDEDIR, and no others.
file(REMOVE_RECURSE "${STAGING}" "${PREFIX}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${STAGING}" --component "${COMPONENT}"
                        COMMAND_ERROR_IS_FATAL ANY)
file(RENAME "${STAGING}" "${PREFIX}")
file(
    GLOB headers
    RELATIVE "${PREFIX}/${INCLUDEDIR}"
    "${PREFIX}/${INCLUDEDIR}/*")
if(NOT headers STREQUAL HEADERS)
    message(FATAL_ERROR "the component ${COMPONENT} installs these headers: ${headers}")
endif()

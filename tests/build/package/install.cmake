# SPDX-License-Identifier: BSD-3-Clause

# Installs the build in BUILD_DIR to STAGING, then moves that to PREFIX: whatever the package knows by
# an absolute path breaks here. With COMPONENT, installs that component only and checks that it has only its
# own headers; INCLUDEDIR is their directory in PREFIX.
file(REMOVE_RECURSE "${STAGING}" "${PREFIX}")
set(component "")
if(COMPONENT)
    set(component --component "${COMPONENT}")
endif()
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${STAGING}" ${component}
                        COMMAND_ERROR_IS_FATAL ANY)
file(RENAME "${STAGING}" "${PREFIX}")
if(COMPONENT)
    file(
        GLOB headers
        RELATIVE "${PREFIX}/${INCLUDEDIR}"
        "${PREFIX}/${INCLUDEDIR}/*")
    if(NOT headers STREQUAL COMPONENT)
        message(FATAL_ERROR "the component ${COMPONENT} installs these headers: ${headers}")
    endif()
endif()

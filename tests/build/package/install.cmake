# SPDX-License-Identifier: BSD-3-Clause

# Installs the build in BUILD_DIR to STAGING, then moves that to PREFIX: whatever the package knows by
# an absolute path breaks here.
file(REMOVE_RECURSE "${STAGING}" "${PREFIX}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${STAGING}"
                        COMMAND_ERROR_IS_FATAL ANY)
file(RENAME "${STAGING}" "${PREFIX}")

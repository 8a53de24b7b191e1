# SPDX-License-Identifier: BSD-3-Clause

# Compiles SOURCE by the command in the list COMPILE, with nothing but the flags that pkg-config prints for PACKAGE
# in PREFIX, and runs it.
set(ENV{PKG_CONFIG_PATH} "${PREFIX}/${LIBDIR}/pkgconfig")
set(ENV{LD_LIBRARY_PATH} "${PREFIX}/${LIBDIR}")
execute_process(
    COMMAND "${PKG_CONFIG}" --cflags --libs ${PACKAGE}
    OUTPUT_VARIABLE flags
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
execute_process(COMMAND ${COMPILE} "${SOURCE}" ${flags} -o "${PROGRAM}" COMMAND_ECHO STDOUT
                        COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${PROGRAM}" COMMAND_ERROR_IS_FATAL ANY)

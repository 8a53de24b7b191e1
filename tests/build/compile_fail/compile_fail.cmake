# SPDX-License-Identifier: BSD-3-Clause

# Compiles FILE twice; see rdmabuf_add_compile_fail().
set(ENV{LC_ALL} C)
set(compile "${COMPILER}" ${FLAGS} -fsyntax-only "${FILE}")

execute_process(
    COMMAND ${compile} -DMUST_COMPILE
    RESULT_VARIABLE status
    ERROR_VARIABLE diagnostics)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "The right spelling does not compile:\n${diagnostics}")
endif()

execute_process(
    COMMAND ${compile}
    RESULT_VARIABLE status
    ERROR_VARIABLE diagnostics)
if(status EQUAL 0)
    message(FATAL_ERROR "${FILE} compiles, and must not")
elseif(NOT diagnostics MATCHES "${EXPECT}")
    message(FATAL_ERROR "Refused, but not for the expected reason, '${EXPECT}':\n${diagnostics}")
endif()

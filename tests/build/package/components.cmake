# SPDX-License-Identifier: BSD-3-Clause

# Installs the build in BUILD_DIR by its components to WORK. Each file must belong to exactly one of COMPONENTS: a file
# without one is in no package.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK}")

# install(result argument...): sets ${result} to the list of the installed files.
function(install result)
    execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${WORK}/${result}" ${ARGN}
                            OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
    file(
        GLOB_RECURSE files
        RELATIVE "${WORK}/${result}"
        "${WORK}/${result}/*")
    set(${result} ${files} PARENT_SCOPE)
endfunction()

install(everything)
set(remaining ${everything})
foreach(component IN LISTS COMPONENTS)
    install(${component} --component ${component})
    foreach(file IN LISTS ${component})
        if(NOT file IN_LIST remaining)
            message(SEND_ERROR "the component ${component} has ${file}, which is in no or another component")
        endif()
    endforeach()
    list(REMOVE_ITEM remaining ${${component}})
endforeach()
if(NOT everything OR remaining)
    message(SEND_ERROR "in no component: ${remaining}")
endif()

# expect(component pattern...): files that match the patterns are in the component.
function(expect component)
    foreach(pattern IN LISTS ARGN)
        set(found ${${component}})
        list(FILTER found INCLUDE REGEX "${pattern}")
        if(NOT found)
            message(SEND_ERROR "the component ${component} has no file that matches ${pattern}: ${${component}}")
        endif()
    endforeach()
endfunction()

expect(development "^include/rdmabuf/transport\\.hpp$" "librdmabuf\\.a$" "rdmabuf-config\\.cmake$" "rdmabuf-transport\\.pc$")
expect(development "^include/rdmabuf/rdmabuf\\.h$" "librdmabuf_c\\.so$" "rdmabuf-c\\.pc$")
expect(runtime_c "librdmabuf_c\\.so\\.0$")
expect(tools "^bin/rdmabuf$")
expect(softverbs "^bin/softverbs$" "^include/softverbs/softverbs\\.h$" "softverbs/libibverbs\\.so\\.1$")
expect(doc "/exporters\\.md$" "/examples/08_transport\\.cpp$")

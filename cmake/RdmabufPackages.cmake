# SPDX-License-Identifier: BSD-3-Clause

# Debian packages by CPack, one for each install component that a package in packaging/debian/control names. All
# fields of the packages come from that file. The shared libraries and their development files come from a second build,
# because a build has either the static or the shared library; all other files come from this build. The target `debs`
# makes both:
#   cmake --build DIR --target debs
set(shared_build "${PROJECT_BINARY_DIR}/shared")
set(control "${PROJECT_SOURCE_DIR}/packaging/debian/control")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${control}")

# Sets CPACK_DEBIAN_<COMPONENT>_PACKAGE_<FIELD> in the caller for each component, and the list `components`.
function(rdmabuf_read_debian_control file)
    file(STRINGS "${file}" lines)
    set(package "")
    set(components "")
    foreach(line IN LISTS lines)
        if(line MATCHES "^([A-Za-z-]+):[ ]*(.*)$")
            string(TOUPPER "${CMAKE_MATCH_1}" field)
            if(field STREQUAL "PACKAGE")
                set(package "${CMAKE_MATCH_2}")
            endif()
            set(${package}.${field} "${CMAKE_MATCH_2}")
            if(field STREQUAL "X-CMAKE-COMPONENT")
                list(APPEND components ${CMAKE_MATCH_2})
                set(package_of_${CMAKE_MATCH_2} ${package})
            endif()
        elseif(line MATCHES "^ (.*)$")
            string(APPEND ${package}.${field} "\n${CMAKE_MATCH_1}")
        endif()
    endforeach()

    foreach(component IN LISTS components)
        string(TOUPPER ${component} upper)
        set(package ${package_of_${component}})
        set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package} PARENT_SCOPE)
        set(CPACK_DEBIAN_${upper}_DESCRIPTION "${${package}.DESCRIPTION}" PARENT_SCOPE)
        foreach(field IN ITEMS SECTION DEPENDS RECOMMENDS SUGGESTS)
            set(value "${${package}.${field}}")
            # CPack adds the packages of the shared libraries itself.
            string(REPLACE "\${binary:Version}" "${PROJECT_VERSION}" value "${value}")
            string(REGEX REPLACE "(, *)?\\\${[a-z]+:Depends}" "" value "${value}")
            string(REGEX REPLACE "^, *" "" value "${value}")
            set(CPACK_DEBIAN_${upper}_PACKAGE_${field} "${value}" PARENT_SCOPE)
        endforeach()
        if(${package}.ARCHITECTURE STREQUAL "all")
            set(CPACK_DEBIAN_${upper}_PACKAGE_ARCHITECTURE all PARENT_SCOPE)
        else()
            # dpkg-shlibdeps finds the packages of the libraries that the files need.
            set(CPACK_DEBIAN_${upper}_PACKAGE_SHLIBDEPS ON PARENT_SCOPE)
        endif()
    endforeach()
    set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${.MAINTAINER}" PARENT_SCOPE)
    set(components ${components} PARENT_SCOPE)
endfunction()

rdmabuf_read_debian_control("${control}")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME rdmabuf)
set(CPACK_PACKAGE_VENDOR "The rdmabuf authors")
# CPack puts another summary before the description of each package, unless the summary is this default.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${CMAKE_PROJECT_NAME} built using CMake")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_SOURCE rdmabuf)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_COMPONENTS_ALL ${components})
# For each of the two builds: its directory, the project, the name of the list of its components
# (CPACK_COMPONENTS_<name>), and the directory to install to.
set(CPACK_COMPONENTS_LIBRARY runtime runtime_c development)
set(CPACK_COMPONENTS_PROGRAMS ${components})
list(REMOVE_ITEM CPACK_COMPONENTS_PROGRAMS ${CPACK_COMPONENTS_LIBRARY})
set(CPACK_INSTALL_CMAKE_PROJECTS "${shared_build};rdmabuf;LIBRARY;/;${PROJECT_BINARY_DIR};rdmabuf;PROGRAMS;/")
# Adds what Debian requires in each package: changelog, copyright, and the symbols of the libraries.
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/packaging/cpack/debian_files.cmake")
set(CPACK_RDMABUF_DEBIAN_DIR "${PROJECT_SOURCE_DIR}/packaging/debian")
set(control_files "${PROJECT_BINARY_DIR}/debian_control_files")
set(CPACK_RDMABUF_CONTROL_FILES "${control_files}")
foreach(component IN ITEMS runtime runtime_c)
    string(TOUPPER ${component} upper)
    set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA
        "${control_files}/${component}/symbols" "${control_files}/${component}/shlibs" "${control_files}/triggers")
endforeach()
set(CPACK_DEBIAN_SOFTVERBS_PACKAGE_CONTROL_EXTRA "${control_files}/triggers")
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)

if(NOT BUILD_SHARED_LIBS AND RDMABUF_BUILD_TOOLS AND RDMABUF_BUILD_SOFTVERBS)
    add_custom_target(
        debs
        COMMAND
            "${CMAKE_COMMAND}" -S "${PROJECT_SOURCE_DIR}" -B "${shared_build}" -G "${CMAKE_GENERATOR}" -D
            CMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -D CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER} -D
            CMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE} -D CMAKE_CXX_FLAGS=${CMAKE_CXX_FLAGS} -D
            CMAKE_CXX_FLAGS_RELWITHDEBINFO=${CMAKE_CXX_FLAGS_RELWITHDEBINFO} -D
            CMAKE_INSTALL_PREFIX=${CMAKE_INSTALL_PREFIX} -D CMAKE_INSTALL_LIBDIR=${CMAKE_INSTALL_LIBDIR} -D
            BUILD_SHARED_LIBS=ON -D RDMABUF_BUILD_EXAMPLES=OFF -D RDMABUF_BUILD_TOOLS=OFF -D RDMABUF_BUILD_BENCHMARKS=OFF
            -D RDMABUF_BUILD_SOFTVERBS=OFF -D RDMABUF_BUILD_INTEGRATIONS=OFF
        COMMAND "${CMAKE_COMMAND}" --build "${shared_build}"
        COMMAND "${CMAKE_CPACK_COMMAND}" --config "${PROJECT_BINARY_DIR}/CPackConfig.cmake" -B "${PROJECT_BINARY_DIR}/debs"
        VERBATIM USES_TERMINAL)
    add_dependencies(debs rdmabuf_command softverbs_command rdmabuf_man_pages)
endif()

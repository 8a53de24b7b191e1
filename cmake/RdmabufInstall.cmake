# SPDX-License-Identifier: BSD-3-Clause

# Installs the packages that programs find with find_package() or pkg-config: rdmabuf, and softverbs if it is
# built. Each package is an install component of the same name: cmake --install DIR --component softverbs.
include(CMakePackageConfigHelpers)

# The directory of the .pc files. Their prefix is relative to it, so the installed tree can be moved. An absolute
# CMAKE_INSTALL_LIBDIR was requested by the user and stays absolute.
set(pkgconfig_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
if(IS_ABSOLUTE "${pkgconfig_dir}")
    set(pkgconfig_prefix "${CMAKE_INSTALL_PREFIX}")
else()
    file(RELATIVE_PATH up "/${pkgconfig_dir}" "/")
    cmake_path(APPEND pkgconfig_prefix "\${pcfiledir}" "${up}")
endif()
foreach(directory IN ITEMS bindir includedir libdir)
    string(TOUPPER ${directory} upper)
    set(pkgconfig_${directory} "\${prefix}")
    cmake_path(APPEND pkgconfig_${directory} "${CMAKE_INSTALL_${upper}}")
endforeach()

# rdmabuf_install_package(name)
#
# Installs the targets of the export set <name>, <name>-config.cmake and <name>.pc. The templates of the last two
# are in this folder.
function(rdmabuf_install_package name)
    set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/${name}")
    install(
        EXPORT ${name}
        NAMESPACE ${name}::
        FILE ${name}-targets.cmake
        DESTINATION "${package_dir}"
        COMPONENT ${name})
    configure_package_config_file(cmake/${name}-config.cmake.in ${name}-config.cmake
                                  INSTALL_DESTINATION "${package_dir}")
    # Before 1.0 a minor version may break its users.
    write_basic_package_version_file(${name}-config-version.cmake COMPATIBILITY SameMinorVersion)
    install(
        FILES "${CMAKE_CURRENT_BINARY_DIR}/${name}-config.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/${name}-config-version.cmake"
        DESTINATION "${package_dir}"
        COMPONENT ${name})
    configure_file(cmake/${name}.pc.in ${name}.pc @ONLY)
    install(
        FILES "${CMAKE_CURRENT_BINARY_DIR}/${name}.pc"
        DESTINATION "${pkgconfig_dir}"
        COMPONENT ${name})
endfunction()

install(
    TARGETS rdmabuf
    EXPORT rdmabuf
    RUNTIME COMPONENT rdmabuf
    LIBRARY COMPONENT rdmabuf
    ARCHIVE COMPONENT rdmabuf
    FILE_SET HEADERS
    COMPONENT rdmabuf)
rdmabuf_install_package(rdmabuf)

if(TARGET softverbs)
    # softverbs/front/CMakeLists.txt installs the libraries that the launcher puts into LD_LIBRARY_PATH.
    install(
        TARGETS softverbs softverbs_command
        EXPORT softverbs
        RUNTIME COMPONENT softverbs
        LIBRARY COMPONENT softverbs
        FILE_SET HEADERS
        COMPONENT softverbs)
    rdmabuf_install_package(softverbs)
endif()

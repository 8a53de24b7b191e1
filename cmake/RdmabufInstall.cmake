# SPDX-License-Identifier: BSD-3-Clause

# Installs the library with its headers, find_package(rdmabuf) and rdmabuf.pc.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/rdmabuf")
install(
    TARGETS rdmabuf
    EXPORT rdmabuf
    FILE_SET HEADERS)
install(
    EXPORT rdmabuf
    NAMESPACE rdmabuf::
    FILE rdmabuf-targets.cmake
    DESTINATION "${package_dir}")

configure_package_config_file(cmake/rdmabuf-config.cmake.in rdmabuf-config.cmake
                              INSTALL_DESTINATION "${package_dir}")
# Before 1.0 a minor version may break its users.
write_basic_package_version_file(rdmabuf-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/rdmabuf-config.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/rdmabuf-config-version.cmake"
        DESTINATION "${package_dir}")

# The prefix is found from where the file lies, so the installed tree can be moved. An absolute
# directory was asked for by whoever configured, and stays.
set(pkgconfig_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
if(IS_ABSOLUTE "${pkgconfig_dir}")
    set(pkgconfig_prefix "${CMAKE_INSTALL_PREFIX}")
else()
    file(RELATIVE_PATH up "/${pkgconfig_dir}" "/")
    cmake_path(APPEND pkgconfig_prefix "\${pcfiledir}" "${up}")
endif()
set(pkgconfig_includedir "\${prefix}")
cmake_path(APPEND pkgconfig_includedir "${CMAKE_INSTALL_INCLUDEDIR}")
set(pkgconfig_libdir "\${prefix}")
cmake_path(APPEND pkgconfig_libdir "${CMAKE_INSTALL_LIBDIR}")
configure_file(cmake/rdmabuf.pc.in rdmabuf.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/rdmabuf.pc" DESTINATION "${pkgconfig_dir}")

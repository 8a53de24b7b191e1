# SPDX-License-Identifier: BSD-3-Clause

# Installs the packages that programs find with find_package() or pkg-config: rdmabuf, and softverbs if it is
# built. The install components are the packages of a distribution, cmake --install DIR --component NAME:
#   runtime      the shared library librdmabuf.so, if BUILD_SHARED_LIBS is ON
#   runtime_c    the shared library librdmabuf_c.so of the C interface
#   development  the headers, the static library or the links to the shared ones, and the files for CMake and pkg-config
#   tools        everything that tools/CMakeLists.txt installs
#   softverbs    everything that softverbs/CMakeLists.txt installs
#   doc          the Markdown pages, the examples, and the sources of the integrations
# An install() command without COMPONENT belongs to the component that CMAKE_INSTALL_DEFAULT_COMPONENT_NAME names in
# its directory.
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

# rdmabuf_install_pkgconfig(name component): installs <name>.pc. Its template is in this folder.
function(rdmabuf_install_pkgconfig name component)
    configure_file(cmake/${name}.pc.in ${name}.pc @ONLY)
    install(
        FILES "${CMAKE_CURRENT_BINARY_DIR}/${name}.pc"
        DESTINATION "${pkgconfig_dir}"
        COMPONENT ${component})
endfunction()

# rdmabuf_install_package(name component)
#
# Installs the targets of the export set <name>, <name>-config.cmake and <name>.pc. The templates of the last two
# are in this folder.
function(rdmabuf_install_package name component)
    set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/${name}")
    install(
        EXPORT ${name}
        NAMESPACE ${name}::
        FILE ${name}-targets.cmake
        DESTINATION "${package_dir}"
        COMPONENT ${component})
    configure_package_config_file(cmake/${name}-config.cmake.in ${name}-config.cmake
                                  INSTALL_DESTINATION "${package_dir}")
    # Before 1.0 a minor version may break its users.
    write_basic_package_version_file(${name}-config-version.cmake COMPATIBILITY SameMinorVersion)
    install(
        FILES "${CMAKE_CURRENT_BINARY_DIR}/${name}-config.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/${name}-config-version.cmake"
        DESTINATION "${package_dir}"
        COMPONENT ${component})
    rdmabuf_install_pkgconfig(${name} ${component})
endfunction()

install(
    TARGETS rdmabuf rdmabuf_transport
    EXPORT rdmabuf
    RUNTIME COMPONENT runtime
    LIBRARY COMPONENT runtime NAMELINK_COMPONENT development
    ARCHIVE COMPONENT development
    FILE_SET HEADERS COMPONENT development)
install(
    TARGETS rdmabuf_c
    EXPORT rdmabuf
    LIBRARY COMPONENT runtime_c NAMELINK_COMPONENT development
    FILE_SET HEADERS COMPONENT development)
rdmabuf_install_pkgconfig(rdmabuf-c development)
rdmabuf_install_package(rdmabuf development)
rdmabuf_install_pkgconfig(rdmabuf-transport development)

if(TARGET softverbs)
    # softverbs/front/CMakeLists.txt installs the libraries that the launcher puts into LD_LIBRARY_PATH.
    install(
        TARGETS softverbs softverbs_command
        EXPORT softverbs
        RUNTIME COMPONENT softverbs
        LIBRARY COMPONENT softverbs
        FILE_SET HEADERS
        COMPONENT softverbs)
    rdmabuf_install_package(softverbs softverbs)
endif()

# The pages link each other, the examples, and the sources of the integrations by relative paths, so all have the same
# place as in the source tree.
install(
    DIRECTORY docs integrations
    DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    COMPONENT doc
    FILES_MATCHING
    PATTERN *.md
    PATTERN *.svg
    PATTERN *.hpp
    PATTERN *.cpp
    PATTERN site EXCLUDE)
install(
    DIRECTORY examples
    DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    COMPONENT doc
    PATTERN CMakeLists.txt EXCLUDE)
install(
    FILES README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md
    DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    COMPONENT doc)
foreach(directory IN ITEMS providers python softverbs tests/kernel tools)
    install(
        FILES ${directory}/README.md
        DESTINATION "${CMAKE_INSTALL_DOCDIR}/${directory}"
        COMPONENT doc)
endforeach()

if(PROJECT_IS_TOP_LEVEL)
    include(RdmabufPackages)
endif()

# SPDX-License-Identifier: BSD-3-Clause

# An overlay port that builds the repository in which it is:
#   vcpkg install rdmabuf[softverbs] --overlay-ports=packaging/vcpkg --triplet=x64-linux-dynamic
#
# libibverbs loads the drivers of NICs as plugins, and softverbs takes the place of the shared libibverbs, so the port needs
# a triplet with shared libraries. vcpkg's libibverbs finds no driver of a NIC: the port rdma-core removes the directory
# etc/libibverbs.d, which lists them. On a machine with a NIC, run programs with the libibverbs of the system, which comes
# first in LD_LIBRARY_PATH.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

vcpkg_find_acquire_program(PKGCONFIG)
vcpkg_check_features(
    OUT_FEATURE_OPTIONS feature_options
    FEATURES tools RDMABUF_BUILD_TOOLS softverbs RDMABUF_BUILD_SOFTVERBS)
vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS ${feature_options} -DRDMABUF_BUILD_TESTS=OFF -DRDMABUF_BUILD_EXAMPLES=OFF -DRDMABUF_BUILD_BENCHMARKS=OFF
            -DRDMABUF_BUILD_INTEGRATIONS=OFF -DRDMABUF_MAN_PAGES=OFF -DRDMABUF_DOCS=OFF
            "-DPKG_CONFIG_EXECUTABLE=${PKGCONFIG}")
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME rdmabuf CONFIG_PATH lib/cmake/rdmabuf DO_NOT_DELETE_PARENT_CONFIG_PATH)
if("softverbs" IN_LIST FEATURES)
    vcpkg_cmake_config_fixup(PACKAGE_NAME softverbs CONFIG_PATH lib/cmake/softverbs DO_NOT_DELETE_PARENT_CONFIG_PATH)
    vcpkg_copy_tools(TOOL_NAMES softverbs AUTO_CLEAN)
endif()
if("tools" IN_LIST FEATURES)
    vcpkg_copy_tools(TOOL_NAMES rdmabuf AUTO_CLEAN)
endif()
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share"
     "${CURRENT_PACKAGES_DIR}/lib/cmake" "${CURRENT_PACKAGES_DIR}/debug/lib/cmake")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")

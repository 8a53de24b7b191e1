# SPDX-License-Identifier: BSD-3-Clause

# rdma-core is the only dependency besides threads and dlopen(3), which are part of the C library since glibc 2.34.
include(CheckCXXSymbolExists)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(libibverbs REQUIRED IMPORTED_TARGET libibverbs)
pkg_check_modules(librdmacm REQUIRED IMPORTED_TARGET librdmacm)

# rdmabuf_require_verbs(symbol RELEASE release PART part [REMEDY remedy])
#
# The versions of the .pc files do not tell rdma-core's release in a way that distributions keep, so ask
# for a function of this release.
function(rdmabuf_require_verbs symbol)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "RELEASE;PART;REMEDY" "")
    set(CMAKE_REQUIRED_LIBRARIES PkgConfig::libibverbs)
    # The compiler's flags are of no interest here, and a sanitizer's could only get in the way.
    set(CMAKE_REQUIRED_QUIET TRUE)
    check_cxx_symbol_exists(${symbol} infiniband/verbs.h RDMABUF_HAVE_${symbol})
    if(NOT RDMABUF_HAVE_${symbol})
        # A result in the cache would outlive the installation of a newer rdma-core.
        unset(RDMABUF_HAVE_${symbol} CACHE)
        message(
            FATAL_ERROR
                "libibverbs ${libibverbs_VERSION} has no ${symbol}(): ${arg_PART} needs rdma-core ${arg_RELEASE} or "
                "newer. Install a newer libibverbs-dev (rdma-core-devel), or point PKG_CONFIG_PATH at one. ${arg_REMEDY}")
    endif()
endfunction()

# What came last among the things that the library calls.
rdmabuf_require_verbs(ibv_import_dm RELEASE 35 PART rdmabuf)
rdmabuf_require_verbs(ibv_is_fork_initialized RELEASE 35 PART rdmabuf)
if(RDMABUF_BUILD_SOFTVERBS)
    rdmabuf_require_verbs(
        ibv_wr_atomic_write
        RELEASE 44
        PART softverbs
        REMEDY "Without softverbs (RDMABUF_BUILD_SOFTVERBS=OFF), rdmabuf needs rdma-core 35.")
endif()

# Whether <infiniband/verbs.h> declares what rdma-core 59 brought. It is found at run time whatever this
# says; the declarations of our own are compared with these.
function(rdmabuf_look_for_verbs symbol result)
    set(CMAKE_REQUIRED_LIBRARIES PkgConfig::libibverbs)
    set(CMAKE_REQUIRED_QUIET TRUE)
    check_cxx_symbol_exists(${symbol} infiniband/verbs.h ${result})
endfunction()

rdmabuf_look_for_verbs(ibv_alloc_dmah RDMABUF_VERBS_HAVE_DMAH)

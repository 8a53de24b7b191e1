# SPDX-License-Identifier: BSD-3-Clause

# rdma-core is the only dependency besides threads, which are part of the C library since glibc 2.34.
include(CheckCXXSymbolExists)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(libibverbs REQUIRED IMPORTED_TARGET libibverbs)
pkg_check_modules(librdmacm REQUIRED IMPORTED_TARGET librdmacm)

# The versions of the .pc files do not tell rdma-core's release in a way that distributions keep, so
# ask for what came last among the things this library calls: both appeared in rdma-core 35.
function(rdmabuf_require_verbs symbol)
    set(CMAKE_REQUIRED_LIBRARIES PkgConfig::libibverbs)
    # The compiler's flags are of no interest here, and a sanitizer's could only get in the way.
    set(CMAKE_REQUIRED_QUIET TRUE)
    check_cxx_symbol_exists(${symbol} infiniband/verbs.h RDMABUF_HAVE_${symbol})
    if(NOT RDMABUF_HAVE_${symbol})
        # A result in the cache would outlive the installation of a newer rdma-core.
        unset(RDMABUF_HAVE_${symbol} CACHE)
        message(
            FATAL_ERROR
                "libibverbs ${libibverbs_VERSION} has no ${symbol}(): rdmabuf needs rdma-core 35 or newer. "
                "Install a newer libibverbs-dev (rdma-core-devel), or point PKG_CONFIG_PATH at one.")
    endif()
endfunction()

rdmabuf_require_verbs(ibv_import_dm)
rdmabuf_require_verbs(ibv_is_fork_initialized)

# Whether <infiniband/verbs.h> declares what rdma-core 59 brought. It is found at run time whatever this
# says; the declarations of our own are compared with these.
function(rdmabuf_look_for_verbs symbol result)
    set(CMAKE_REQUIRED_LIBRARIES PkgConfig::libibverbs)
    set(CMAKE_REQUIRED_QUIET TRUE)
    check_cxx_symbol_exists(${symbol} infiniband/verbs.h ${result})
endfunction()

rdmabuf_look_for_verbs(ibv_alloc_dmah RDMABUF_VERBS_HAVE_DMAH)

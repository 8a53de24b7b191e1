# SPDX-License-Identifier: BSD-3-Clause
from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Rdmabuf(CMakePackage):
    """C++20 library over libibverbs for RDMA on dma-bufs and device memory, with the command rdmabuf and softverbs, a
    software RDMA device in user space."""

    license("BSD-3-Clause")

    # Versions have no archive to download yet: build a clone of the repository with `spack dev-build` or `spack develop`.
    version("0.1.0")

    variant("shared", default=True, description="Build a shared library")
    variant("tools", default=True, description="Build the command rdmabuf")
    variant("softverbs", default=True, description="Build softverbs, the software RDMA device")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type=("build", "link"))
    depends_on("rdma-core@35:")
    depends_on("rdma-core@44:", when="+softverbs")
    depends_on("libdrm", type="build")
    depends_on("cli11", type="build", when="+tools")
    depends_on("cli11", type="build", when="+softverbs")
    depends_on("fmt", when="+tools")
    depends_on("libnl", when="+tools")
    depends_on("nlohmann-json@3:", type="build", when="+tools")
    depends_on("zlib-api", when="+tools")

    conflicts("%gcc@:11", msg="rdmabuf needs g++ 12 or newer")
    conflicts("%clang@:13", msg="rdmabuf needs clang 14 or newer")
    conflicts("platform=darwin", msg="rdmabuf needs Linux")
    conflicts("platform=windows", msg="rdmabuf needs Linux")

    def cmake_args(self):
        return [
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("RDMABUF_BUILD_TOOLS", "tools"),
            self.define_from_variant("RDMABUF_BUILD_SOFTVERBS", "softverbs"),
            self.define("RDMABUF_BUILD_TESTS", False),
            self.define("RDMABUF_BUILD_EXAMPLES", False),
            self.define("RDMABUF_BUILD_BENCHMARKS", False),
            self.define("RDMABUF_BUILD_INTEGRATIONS", False),
            # Otherwise the result depends on the programs of the machine.
            self.define("RDMABUF_MAN_PAGES", "OFF"),
            self.define("RDMABUF_DOCS", "OFF"),
        ]

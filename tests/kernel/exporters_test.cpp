// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <fstream>

#include <gmock/gmock.h>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/dma_heap.hpp>
#include <rdmabuf/providers/drm.hpp>
#include <rdmabuf/providers/udmabuf.hpp>

#include "exporter_suite.hpp"
#include "fails_with.hpp"
#include "support.hpp"

// On the devices of a real kernel. What is missing fails: the rig has them all.
namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Values;

INSTANTIATE_TEST_SUITE_P(
    Kernel, ExporterSuite,
    Values(Subject{.name = "drm", .make = [] { return make_drm_exporter(); }},
           Subject{.name = "dma_heap", .make = [] { return make_dma_heap_exporter(); }},
           Subject{.name = "udmabuf", .make = [] { return make_udmabuf_exporter(); }}),
    [](const auto& suite) { return suite.param.name; });

TEST(RealDrm, IsVgem) {
    EXPECT_THAT(make_drm_exporter()->availability().reason,
                AllOf(HasSubstr("/dev/dri/card"), HasSubstr(", vgem")));
    EXPECT_TRUE(make_drm_exporter({.driver = "vgem"})->availability());
}

TEST(RealDrm, RefusesARenderNode) {
    const auto exporter = make_drm_exporter({.path = "/dev/dri/renderD128"});
    EXPECT_FALSE(exporter->availability());
    EXPECT_THAT(error_of([&] { (void)exporter->allocate(1); }),
                fails_with(EACCES, "render nodes cannot make dumb buffers"));
}

TEST(RealDrm, MakesALargeBuffer) {
    // Larger ones are left to the fake kernel: vgem takes all pages at once, and the guest has few.
    const std::size_t size = std::size_t{256} << 20;
    const auto exporter = make_drm_exporter();
    const Buffer buffer = exporter->allocate(size);
    ASSERT_EQ(buffer.size(), size);
    fill(buffer.cpu_access().bytes().last(page_size()), 4);
    const ExportedRange range = exporter->export_range(buffer.address() + size - 1, 1);
    EXPECT_EQ(range.offset(), size - 1);
    EXPECT_EQ(bytes_through(range).front(), buffer.cpu_access().bytes().back());
}

TEST(RealDmaHeap, ListsTheSystemHeap) {
    EXPECT_THAT(list_dma_heaps(), Contains("system"));
    EXPECT_EQ(make_dma_heap_exporter()->availability().reason, "/dev/dma_heap/system");
}

TEST(RealDmaHeap, NamesTheHeapsThereAre) {
    EXPECT_THAT(error_of([] { (void)make_dma_heap_exporter("no-such-heap")->allocate(1); }),
                fails_with(ENOENT, "'no-such-heap'", "system"));
}

TEST(RealUdmabuf, KeepsToTheModulesLimit) {
    std::size_t limit_mb = 0;
    std::ifstream("/sys/module/udmabuf/parameters/size_limit_mb") >> limit_mb;
    ASSERT_GT(limit_mb, 0U);
    const std::size_t limit = limit_mb << 20;
    const auto exporter = make_udmabuf_exporter();
    EXPECT_EQ(exporter->availability().reason,
              "/dev/udmabuf, up to " + std::to_string(limit_mb) + " MiB per buffer");
    EXPECT_THAT(error_of([&] { (void)exporter->allocate(limit + 1); }),
                fails_with(EINVAL, std::to_string(limit + page_size()), std::to_string(limit)));
    EXPECT_EQ(exporter->allocate(limit).size(), limit);
}

} // namespace
} // namespace rdmabuf::testing

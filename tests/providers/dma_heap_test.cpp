// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include <gmock/gmock.h>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/dma_heap.hpp>

#include "exporter_suite.hpp"
#include "fails_with.hpp"
#include "fake_kernel.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Subject subject{.name = "dma_heap",
                      .make = [] { return make_dma_heap_exporter(); },
                      .machine =
                          [] {
                              auto kernel = std::make_shared<FakeKernel>();
                              kernel->add_heap("system");
                              return kernel;
                          }};

INSTANTIATE_TEST_SUITE_P(DmaHeap, ExporterSuite, ::testing::Values(subject));
INSTANTIATE_TEST_SUITE_P(DmaHeap, ExporterFaults, ::testing::Values(subject));

class DmaHeap : public ::testing::Test {
  protected:
    FakeKernel kernel;
};

TEST_F(DmaHeap, ListsTheHeapsInOrder) {
    EXPECT_THAT(list_dma_heaps(), IsEmpty());
    kernel.add_heap("system");
    kernel.add_heap("default_cma_region");
    EXPECT_THAT(list_dma_heaps(), ElementsAre("default_cma_region", "system"));
}

TEST_F(DmaHeap, CannotListWhatItCannotRead) {
    kernel.fail_call(1, EACCES);
    EXPECT_THAT(error_of([] { (void)list_dma_heaps(); }),
                fails_with("opendir", EACCES, "/dev/dma_heap"));
}

TEST_F(DmaHeap, TellsItsDevice) {
    kernel.add_heap("default_cma_region");
    EXPECT_EQ(make_dma_heap_exporter("default_cma_region")->availability().reason,
              "/dev/dma_heap/default_cma_region");
}

TEST_F(DmaHeap, NamesTheHeapsThereAreWhenOneIsMissing) {
    kernel.add_heap("system");
    kernel.add_heap("default_cma_region");
    for (const char* name : {"reserved", "", "../udmabuf"}) {
        const auto exporter = make_dma_heap_exporter(name);
        const Availability found = exporter->availability();
        EXPECT_FALSE(found);
        EXPECT_THAT(found.reason, HasSubstr("'" + std::string(name) + "'"));
        EXPECT_THAT(found.remedy, HasSubstr("default_cma_region, system"));
        const auto error = error_of([&] { (void)exporter->allocate(1); });
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), ENOENT);
        EXPECT_STREQ(error->function(), "open");
        EXPECT_EQ(error->hint(), found.reason + "; " + found.remedy);
    }
}

TEST_F(DmaHeap, TellsThatAKernelHasNoHeaps) {
    const auto exporter = make_dma_heap_exporter();
    const Availability found = exporter->availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, AllOf(HasSubstr("'system'"), HasSubstr("/dev/dma_heap")));
    EXPECT_THAT(found.remedy, HasSubstr("CONFIG_DMABUF_HEAPS"));
    EXPECT_THAT(error_of([&] { (void)exporter->allocate(1); }), fails_with(ENOENT));
}

TEST_F(DmaHeap, TellsThatAHeapIsForbidden) {
    kernel.add_heap("system");
    kernel.forbid("/dev/dma_heap/system");
    const auto exporter = make_dma_heap_exporter();
    EXPECT_EQ(exporter->availability().reason,
              "this process has no permission to open /dev/dma_heap/system");
    EXPECT_THAT(error_of([&] { (void)exporter->allocate(1); }), fails_with(EACCES));
}

TEST_F(DmaHeap, TellsWhatWasAskedForWhenAHeapIsExhausted) {
    kernel.add_heap("system");
    // After opendir and open.
    kernel.fail_call(3, ENOMEM);
    EXPECT_THAT(error_of([] { (void)make_dma_heap_exporter()->allocate(page_size()); }),
                fails_with("ioctl(DMA_HEAP_IOCTL_ALLOC)", ENOMEM,
                           std::to_string(page_size()) + " bytes", "'system'"));
}

} // namespace
} // namespace rdmabuf::testing

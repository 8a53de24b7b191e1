// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/providers/dma_heap.hpp>

#include "exporter_suite.hpp"
#include "fake_kernel.hpp"

namespace rdmabuf::testing {
namespace {

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

} // namespace
} // namespace rdmabuf::testing

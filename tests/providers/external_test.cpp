// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/providers/dma_heap.hpp>
#include <rdmabuf/providers/external.hpp>

#include "adding_allocator.hpp"
#include "exporter_suite.hpp"
#include "fake_kernel.hpp"

namespace rdmabuf::testing {
namespace {

const Subject subject{
    .name = "external",
    .make =
        [] {
            auto external = make_external_exporter();
            const auto add = [external](const Buffer& buffer, const ExportedRange& all) {
                return external->add(all.fd(),
                                     {.address = buffer.address(), .length = buffer.size()});
            };
            return std::make_shared<AddingAllocator>(external, add, make_dma_heap_exporter());
        },
    .machine =
        [] {
            auto kernel = std::make_shared<FakeKernel>();
            kernel->add_heap("system");
            return kernel;
        },
    .works_with = "ranges that the program adds"};

INSTANTIATE_TEST_SUITE_P(External, ExporterSuite, ::testing::Values(subject));
INSTANTIATE_TEST_SUITE_P(External, ExporterFaults, ::testing::Values(subject));

} // namespace
} // namespace rdmabuf::testing

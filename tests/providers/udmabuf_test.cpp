// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/providers/udmabuf.hpp>

#include "exporter_suite.hpp"
#include "fake_kernel.hpp"

namespace rdmabuf::testing {
namespace {

const Subject subject{.name = "udmabuf",
                      .make = [] { return make_udmabuf_exporter(); },
                      .machine =
                          [] {
                              auto kernel = std::make_shared<FakeKernel>();
                              kernel->add_udmabuf();
                              return kernel;
                          }};

INSTANTIATE_TEST_SUITE_P(Udmabuf, ExporterSuite, ::testing::Values(subject));
INSTANTIATE_TEST_SUITE_P(Udmabuf, ExporterFaults, ::testing::Values(subject));

} // namespace
} // namespace rdmabuf::testing

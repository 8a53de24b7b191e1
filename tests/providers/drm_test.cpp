// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/providers/drm.hpp>

#include "exporter_suite.hpp"
#include "fake_kernel.hpp"

namespace rdmabuf::testing {
namespace {

const Subject subject{.name = "drm",
                      .make = [] { return make_drm_exporter(); },
                      .machine =
                          [] {
                              auto kernel = std::make_shared<FakeKernel>();
                              kernel->add_card("card0");
                              return kernel;
                          }};

INSTANTIATE_TEST_SUITE_P(Drm, ExporterSuite, ::testing::Values(subject));
INSTANTIATE_TEST_SUITE_P(Drm, ExporterFaults, ::testing::Values(subject));

} // namespace
} // namespace rdmabuf::testing

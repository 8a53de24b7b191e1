// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/providers/habana.hpp>

#include "exporter_suite.hpp"
#include "fake_driver.hpp"

namespace rdmabuf::testing {
namespace {

const Subject subject{.name = "habana",
                      .make = [] { return make_habana_exporter(); },
                      .machine =
                          [] {
                              fake_driver::reset(1);
                              return nullptr;
                          },
                      .works_with = "libhl-thunk.so, 0000:33:00.0",
                      .makes_dmabufs = false,
                      .mapped = false,
                      .exports_more = true};

INSTANTIATE_TEST_SUITE_P(Habana, ExporterSuite, ::testing::Values(subject));

} // namespace
} // namespace rdmabuf::testing

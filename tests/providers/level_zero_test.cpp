// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/providers/level_zero.hpp>

#include "exporter_suite.hpp"
#include "fake_driver.hpp"

namespace rdmabuf::testing {
namespace {

const Subject subject{.name = "level_zero",
                      .make =
                          [] {
                              auto exporter = make_level_zero_exporter();
                              // Initialises Level Zero. Before that, it has no memory.
                              (void)exporter->availability();
                              return exporter;
                          },
                      .machine =
                          [] {
                              fake_driver::reset(1);
                              return nullptr;
                          },
                      .works_with = "libze_loader.so.1 for Level Zero 1.3, 0001:3a:1f.1",
                      .makes_dmabufs = false,
                      .mapped = false};

INSTANTIATE_TEST_SUITE_P(LevelZero, ExporterSuite, ::testing::Values(subject));

} // namespace
} // namespace rdmabuf::testing

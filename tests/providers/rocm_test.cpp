// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/providers/rocm.hpp>

#include "exporter_suite.hpp"
#include "fake_rocm.hpp"

namespace rdmabuf::testing {
namespace {

const Subject subject{.name = "rocm",
                      .make =
                          [] {
                              auto exporter = make_rocm_exporter();
                              // In a program that uses HSA; in others no address is HSA's.
                              (void)exporter->availability();
                              return exporter;
                          },
                      .machine =
                          [] {
                              fake_rocm_reset(1);
                              // Devices with a small BAR refuse it.
                              fake_rocm_set_pcie(47);
                              return nullptr;
                          },
                      .works_with = "libhsa-runtime64.so.1, 0000:3b:00.0",
                      .makes_dmabufs = false,
                      .mapped = false,
                      .falls_back = true};

INSTANTIATE_TEST_SUITE_P(Rocm, ExporterSuite, ::testing::Values(subject));

} // namespace
} // namespace rdmabuf::testing

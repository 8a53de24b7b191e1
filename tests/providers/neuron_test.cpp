// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/providers/neuron.hpp>

#include "exporter_suite.hpp"
#include "fake_driver.hpp"

namespace rdmabuf::testing {
namespace {

const Subject subject{.name = "neuron",
                      .make = [] { return make_neuron_exporter(); },
                      .machine =
                          [] {
                              fake_driver::reset(2);
                              return nullptr;
                          },
                      .works_with = "libnrt.so.1 2.31.24.0, NeuronCores: 2",
                      .makes_dmabufs = false,
                      .mapped = false};

INSTANTIATE_TEST_SUITE_P(Neuron, ExporterSuite, ::testing::Values(subject));

} // namespace
} // namespace rdmabuf::testing

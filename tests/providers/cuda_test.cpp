// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/providers/cuda.hpp>

#include "exporter_suite.hpp"
#include "fake_cuda.hpp"

namespace rdmabuf::testing {
namespace {

const Subject subject{.name = "cuda",
                      .make =
                          [] {
                              auto exporter = make_cuda_exporter();
                              // In a program that uses CUDA; in others no address is CUDA's.
                              (void)exporter->availability();
                              return exporter;
                          },
                      .machine =
                          [] {
                              fake_cuda_reset(1);
                              // Platforms that have one way to the memory refuse the other.
                              fake_cuda_set_pcie(801);
                              return nullptr;
                          },
                      .works_with = "libcuda.so.1 for CUDA 13.0, 0000:3b:00.0",
                      .makes_dmabufs = false,
                      .mapped = false,
                      .exports_pages = true,
                      .falls_back = true};

INSTANTIATE_TEST_SUITE_P(Cuda, ExporterSuite, ::testing::Values(subject));

} // namespace
} // namespace rdmabuf::testing

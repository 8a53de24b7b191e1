// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/providers/cuda.hpp>

#include "cuda/cuda_abi.hpp"
#include "exporter_suite.hpp"
#include "fake_driver.hpp"

namespace rdmabuf::testing {
namespace {

const Subject subject{.name = "cuda",
                      .make =
                          [] {
                              auto exporter = make_cuda_exporter();
                              // Initialises CUDA. Before that, CUDA has no memory.
                              (void)exporter->availability();
                              return exporter;
                          },
                      .machine =
                          [] {
                              fake_driver::reset(1);
                              // The exporter falls back to the other mapping.
                              fake_driver::set(fake_driver::Setting::pcie_result,
                                               detail::cuda::not_supported);
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

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>

namespace rdmabuf::tools::doctor {

/// The options of `rdmabuf doctor`.
struct Options {
    /// The name of the only RDMA device to check; empty for all devices.
    std::string device = {};
    /// The only GPU to check: its PCI address, or its index in the order of the PCI addresses;
    /// empty for all GPUs.
    std::string gpu = {};
    /// True if the conditions of a pair of GPU and NIC are checked for all pairs. By default, they
    /// are checked for each GPU and the NICs that are nearest to it.
    bool pair = false;
    bool json = false;
    /// True if the commands that correct the failed conditions are printed as a shell script.
    bool fix_script = false;
    /// True if only the failed conditions and the result are printed.
    bool failed = false;
    /// True if the exit status is 0 only after a successful proof (test transfers) with a dma-buf.
    /// Proofs with memory on the NIC or through a peer memory module then do not count.
    bool require_dmabuf = false;
    /// True if the variables of UCX, NCCL and NVSHMEM are printed for each GPU.
    bool emit_env = false;
    /// The file to which the files of the machine and the report are written; empty for none.
    std::filesystem::path dump = {};
    /// The dump of another machine that is checked in place of `root`; empty for none.
    std::filesystem::path replay = {};
    /// The directory that contains the directories sys, proc and dev of the machine.
    std::filesystem::path root = "/";
};

} // namespace rdmabuf::tools::doctor

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "fake_kernel.hpp"

namespace rdmabuf::testing {

/// What FakeKernel keeps of a device and of a file that is open.
struct FakeKernel::Device {
    enum class Kind { udmabuf, heap, card, vfio };
    Kind kind = Kind::heap;
    Card card = {};
    bool render = false;
    dev_t number = 0;
    Vfio vfio = {};
};

/// The memory behind a handle.
struct FakeKernel::DumbBuffer {
    int backing = -1;
    std::uint64_t size = 0;
};

struct FakeKernel::OpenFile {
    /// None: the file is a dma-buf, or a memfd.
    std::optional<Device> device;
    std::map<std::uint32_t, DumbBuffer> dumb_buffers = {};
    std::uint32_t last_handle = 0;
    bool master = false;
    bool memfd = false;
};

} // namespace rdmabuf::testing

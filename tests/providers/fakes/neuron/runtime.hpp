// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "call_script.hpp"
#include "device_memory.hpp"
#include "fake_neuron.hpp"
#include "neuron/neuron_abi.hpp"

struct rdmabuf::detail::neuron::OpaqueTensor {
    std::uint64_t address;
    std::size_t size;
};

namespace fake_neuron {

namespace abi = rdmabuf::detail::neuron;

/// All there is; the lock is held by whoever uses it.
struct Runtime {
    std::mutex mutex;
    fake_driver::DeviceMemory memory;
    std::map<std::uint64_t, std::unique_ptr<abi::Tensor>> tensors;
    fake_driver::CallScript script;
    unsigned cores = 2;
    bool initialised = false;
    abi::Version version{.major = 2, .minor = 31, .patch = 24};
    FakeNeuronFaults faults;

    static Runtime& get();

    /// Null without room.
    abi::Tensor* allocate(std::size_t size);
    void free(std::uint64_t address);
    /// Null when none holds @p address.
    const abi::Tensor* holder(std::uint64_t address) const;
    /// Puts the descriptor of the pages of a range into @p fd.
    abi::Status share(std::uint64_t address, std::size_t size, int* fd);
};

/// A call, counted, with the runtime locked.
class Call {
  public:
    explicit Call(const char* function)
        : runtime_(Runtime::get()),
          lock_(runtime_.mutex),
          refused_(runtime_.script.enter(function).value_or(abi::success)) {}

    /// What it fails with before it is looked at.
    [[nodiscard]] abi::Status refused() const noexcept { return refused_; }
    /// The same of a function that needs the runtime initialised.
    [[nodiscard]] abi::Status refused_unless_initialised() const noexcept {
        if (refused_ != abi::success) {
            return refused_;
        }
        return runtime_.initialised ? abi::success : abi::uninitialized;
    }
    Runtime* operator->() const noexcept { return &runtime_; }

  private:
    Runtime& runtime_;
    std::lock_guard<std::mutex> lock_;
    abi::Status refused_;
};

} // namespace fake_neuron

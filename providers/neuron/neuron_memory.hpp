// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "neuron/neuron_driver.hpp"

namespace rdmabuf::detail::neuron {

/// Owns a tensor in the memory of a NeuronCore.
class TensorMemory {
  public:
    /// Allocates the tensor. Initialises the runtime if it is not initialised.
    /// @param driver  must exist until the process ends
    /// @param size    in bytes, not 0
    /// @throws Error with the errno for the status of the runtime, or EIO if the runtime returns no
    ///         address
    TensorMemory(const Driver& driver, int core, std::size_t size);

    [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    void copy_in(std::size_t offset, std::span<const std::byte> source);
    void copy_out(std::size_t offset, std::span<std::byte> destination) const;

  private:
    struct Free {
        TensorFree* free;
        void operator()(Tensor* tensor) const noexcept { free(&tensor); }
    };
    using UniqueTensor = std::unique_ptr<Tensor, Free>;
    static UniqueTensor allocate(const Driver& driver, int core, std::size_t size);

    const Driver* driver_;
    std::size_t size_;
    UniqueTensor tensor_;
    std::uintptr_t address_;
};

} // namespace rdmabuf::detail::neuron

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda_program_abi.hpp"

namespace cuda_program {

/// The driver's functions, and the primary context of device 0, current in this thread: what a
/// program that uses CUDA has before it meets rdmabuf.
class Program {
  public:
    /// @throws std::runtime_error without a driver, or when it refuses
    Program();
    ~Program();
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    /// Memory that the program owns; frees itself.
    using Memory = std::shared_ptr<void>;
    [[nodiscard]] static std::uintptr_t address_of(const Memory& memory) {
        return reinterpret_cast<std::uintptr_t>(memory.get());
    }

    [[nodiscard]] Memory allocate(std::size_t size) const;
    [[nodiscard]] Memory allocate_managed(std::size_t size) const;
    [[nodiscard]] Memory allocate_of_pool(std::size_t size) const;
    [[nodiscard]] Memory allocate_host(std::size_t size) const;
    enum class Place { device, host };
    /// An allocation of @p size bytes for each place, mapped one after the other in one reserved
    /// range.
    [[nodiscard]] Memory map(const std::vector<Place>& places, std::size_t size) const;
    /// Replaces the memory of a range of map() that has one place by other memory at the same
    /// address.
    void map_again(const Memory& range, std::size_t size) const;
    /// What the size of a mapping is a multiple of.
    [[nodiscard]] std::size_t granularity() const;

    /// Waits until all kernels of the null stream have ended.
    void synchronize() const;

    /// Between the device and this program, by the driver.
    void copy_in(std::uintptr_t to, const std::vector<std::byte>& from) const;
    [[nodiscard]] std::vector<std::byte> copy_out(std::uintptr_t from, std::size_t size) const;

  private:
    void map_at(DevicePointer address, Place place, std::size_t size) const;
    [[nodiscard]] Memory owned(DevicePointer address) const;
    template <class Function>
    [[nodiscard]] Function* function(const char* name) const;
    void check(Result result, const char* name) const;

    void* library_;
    rdmabuf::detail::cuda::Context context_ = nullptr;
};

} // namespace cuda_program

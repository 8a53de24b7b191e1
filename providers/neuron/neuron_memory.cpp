// SPDX-License-Identifier: BSD-3-Clause
#include "neuron/neuron_memory.hpp"

#include <cerrno>
#include <mutex>
#include <string>

#include <rdmabuf/error.hpp>

namespace rdmabuf::detail::neuron {
namespace {

NrtStatus try_to_allocate(const Driver& driver, int core, std::size_t size, Tensor*& tensor) {
    return driver.functions().tensor_allocate(Placement::device, core, size, "rdmabuf", &tensor);
}

/// Calls nrt_init(), then allocates. A process may call nrt_init() only once, and no function
/// returns whether it was called. The caller must therefore try to allocate first, and may call
/// this function only if the runtime was not initialised.
NrtStatus initialise_and_allocate(const Driver& driver, int core, std::size_t size,
                                  Tensor*& tensor) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    // Another thread may have initialised the runtime while this thread waited for the lock.
    const NrtStatus allocated = try_to_allocate(driver, core, size, tensor);
    if (allocated != uninitialized) {
        return allocated;
    }
    driver.check(driver.functions().init(no_framework, "", ""), "nrt_init",
                 "the runtime cannot be initialised");
    return try_to_allocate(driver, core, size, tensor);
}

} // namespace

TensorMemory::UniqueTensor TensorMemory::allocate(const Driver& driver, int core,
                                                  std::size_t size) {
    Tensor* tensor = nullptr;
    NrtStatus allocated = try_to_allocate(driver, core, size, tensor);
    if (allocated == uninitialized) {
        allocated = initialise_and_allocate(driver, core, size, tensor);
    }
    driver.check(
        allocated, "nrt_tensor_allocate",
        std::to_string(size) + " bytes of NeuronCore " + std::to_string(core) + " were requested");
    return {tensor, Free{driver.functions().tensor_free}};
}

TensorMemory::TensorMemory(const Driver& driver, int core, std::size_t size)
    : driver_(&driver),
      size_(size),
      tensor_(allocate(driver, core, size)),
      address_(
          reinterpret_cast<std::uintptr_t>(driver.functions().tensor_get_address(tensor_.get()))) {
    if (address_ == 0) {
        throw Error(EIO, "nrt_tensor_get_va",
                    "the runtime returned no address for a tensor that it has just allocated");
    }
}

void TensorMemory::copy_in(std::size_t offset, std::span<const std::byte> source) {
    driver_->check(
        driver_->functions().tensor_write(tensor_.get(), source.data(), offset, source.size()),
        "nrt_tensor_write",
        std::to_string(source.size()) + " bytes could not be copied to the device");
}

void TensorMemory::copy_out(std::size_t offset, std::span<std::byte> destination) const {
    driver_->check(
        driver_->functions().tensor_read(tensor_.get(), destination.data(), offset,
                                         destination.size()),
        "nrt_tensor_read",
        std::to_string(destination.size()) + " bytes could not be copied from the device");
}

} // namespace rdmabuf::detail::neuron

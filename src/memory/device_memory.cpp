// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/device_memory.hpp>

#include "base/address_space.hpp"
#include "memory/checks.hpp"

namespace rdmabuf {

int detail::FreeDm::call(ibv_dm* dm) noexcept {
    return ibv_free_dm(dm);
}

void detail::FreeDm::unimport(ibv_dm* dm) noexcept {
    ibv_unimport_dm(dm);
}

namespace {

/// Copies to and from device memory use units of 4 bytes: mlx5_access_dm() in rdma-core accesses 32
/// bits at a time.
constexpr std::size_t copy_unit = 4;

constexpr Access dm_access = full_access;

/// Returns true if @p function points to loaded code. The copy functions of ibv_dm must be checked:
/// libmlx5 leaves them null for some types of device memory, and the mana provider leaves them
/// uninitialised. A call of such a pointer would crash.
template <class Function>
bool is_code(Function* function) noexcept {
    return function != nullptr &&
           detail::is_loaded_code(reinterpret_cast<std::uintptr_t>(function));
}

ibv_dm* allocate(const Context& context, std::size_t size, const DeviceMemoryOptions& options) {
    ibv_context* const native = detail::native_of(context, "ibv_alloc_dm", "Context");
    if (size == 0) {
        throw Error(EINVAL, "ibv_alloc_dm", "a size of 0: there is nothing to allocate");
    }
    ibv_alloc_dm_attr attributes{};
    attributes.length = size;
    attributes.log_align_req = options.log2_alignment;
    errno = 0;
    return detail::check_pointer(ibv_alloc_dm(native, &attributes), "ibv_alloc_dm", [&](int) {
        const std::uint64_t limit = context.attributes().max_dm_size();
        return std::to_string(size) + " bytes aligned to 2^" +
               std::to_string(options.log2_alignment) + " on " + context.device_name() +
               ", which " +
               (limit != 0 ? "reports " + std::to_string(limit) + " bytes of device memory"
                           : std::string("reports no device memory"));
    });
}

std::size_t region_length(const DeviceMemory& memory,
                          const DeviceMemoryMROptions& options) noexcept {
    return options.length == 0 && options.offset <= memory.size() ? memory.size() - options.offset
                                                                  : options.length;
}

ibv_mr* register_memory(const ProtectionDomain& pd, const DeviceMemory& memory,
                        const DeviceMemoryMROptions& options) {
    constexpr const char* function = "ibv_reg_dm_mr";
    ibv_pd* const native_pd = detail::native_of(pd, function, "ProtectionDomain");
    ibv_dm* const native_dm = detail::native_of(memory, function, "DeviceMemory");
    detail::check_access(options.access & ~Access::zero_based, dm_access, function,
                         "device memory");
    const std::size_t length = region_length(memory, options);
    detail::check_inside(options.offset, length, memory.size(), function, "the device memory");
    if (length == 0) {
        throw Error(EINVAL, function, "a length of 0: there is nothing to register");
    }
    // The flag IBV_ACCESS_ZERO_BASED is always set, because ibv_reg_dm_mr(3) fails without this
    // flag.
    errno = 0;
    return detail::check_pointer(
        ibv_reg_dm_mr(native_pd, native_dm, options.offset, length,
                      static_cast<unsigned>(options.access | Access::zero_based)),
        function, [&](int) {
            return std::to_string(length) + " bytes at offset " + std::to_string(options.offset) +
                   " of device memory of " + std::to_string(memory.size()) + " bytes";
        });
}

detail::RegionHandle make_region(const ProtectionDomain& pd, const DeviceMemory& memory,
                                 std::shared_ptr<const void> keep_memory,
                                 const DeviceMemoryMROptions& options) {
    return detail::RegionHandle(
        register_memory(pd, memory, options),
        detail::RegionHandle::deleter_type::holding(pd, std::move(keep_memory)));
}

} // namespace

DeviceMemory::DeviceMemory(const Context& context, std::size_t size,
                           const DeviceMemoryOptions& options)
    : DeviceMemory(adopt(context, allocate(context, size, options), size)) {}

DeviceMemory DeviceMemory::adopt(const Context& context, ibv_dm* memory, std::size_t size) {
    using Owner = detail::DeviceMemoryHandle::unique;
    return {Owner(memory, Owner::deleter_type::holding(context)), size};
}

DeviceMemory DeviceMemory::borrow(ibv_dm* memory, std::size_t size) {
    using Borrowed = detail::DeviceMemoryHandle;
    return memory != nullptr
               ? DeviceMemory(Borrowed::borrow(memory, Context::borrow(memory->context)), size)
               : DeviceMemory(Borrowed(), 0);
}

DeviceMemory DeviceMemory::import_handle(const Context& context, std::uint32_t handle,
                                         std::size_t size) {
    constexpr const char* function = "ibv_import_dm";
    ibv_context* const native = detail::native_of(context, function, "Context");
    auto deleter = detail::DeviceMemoryHandle::unique::deleter_type::holding(context);
    deleter.set_imported();
    errno = 0;
    ibv_dm* const dm = detail::check_pointer(ibv_import_dm(native, handle), function, [&](int) {
        return "device memory " + std::to_string(handle) + " of " + context.device_name();
    });
    return {detail::DeviceMemoryHandle::unique(dm, std::move(deleter)), size};
}

DeviceMemory::DeviceMemory(detail::DeviceMemoryHandle handle, std::size_t size) noexcept
    : handle_(std::move(handle)),
      size_(size),
      can_copy_in_(handle_ && is_code(native()->memcpy_to_dm)),
      can_copy_out_(handle_ && is_code(native()->memcpy_from_dm)) {}

Status DeviceMemory::check_copy(std::size_t offset, const void* host, std::size_t length,
                                bool provider_can) const noexcept {
    if (native() == nullptr) {
        return Status(EBADF);
    }
    if (offset > size_ || length > size_ - offset) {
        return Status(ERANGE);
    }
    if ((offset | length | reinterpret_cast<std::uintptr_t>(host)) % copy_unit != 0) {
        return Status(EINVAL);
    }
    return Status(provider_can ? 0 : EOPNOTSUPP);
}

Status DeviceMemory::try_copy_in(std::size_t offset, std::span<const std::byte> source) noexcept {
    const Status status = check_copy(offset, source.data(), source.size(), can_copy_in_);
    return status ? Status(ibv_memcpy_to_dm(native(), offset, source.data(), source.size()))
                  : status;
}

Status DeviceMemory::try_copy_out(std::size_t offset,
                                  std::span<std::byte> destination) const noexcept {
    const Status status = check_copy(offset, destination.data(), destination.size(), can_copy_out_);
    return status ? Status(ibv_memcpy_from_dm(destination.data(), native(), offset,
                                              destination.size()))
                  : status;
}

void DeviceMemory::copy_in(std::size_t offset, std::span<const std::byte> source) {
    if (const Status status = try_copy_in(offset, source); !status) {
        explain_copy(status, "ibv_memcpy_to_dm", offset, source.data(), source.size());
    }
}

void DeviceMemory::copy_out(std::size_t offset, std::span<std::byte> destination) const {
    if (const Status status = try_copy_out(offset, destination); !status) {
        explain_copy(status, "ibv_memcpy_from_dm", offset, destination.data(), destination.size());
    }
}

void DeviceMemory::explain_copy(Status status, const char* function, std::size_t offset,
                                const void* host, std::size_t length) const {
    static_cast<void>(detail::native_of(*this, function, "DeviceMemory"));
    detail::check_inside(offset, length, size_, function, "the device memory");
    std::string hint;
    if (status.error() == EINVAL) {
        hint =
            std::to_string(length) + " bytes at offset " + std::to_string(offset) +
            ", host memory " + std::to_string(reinterpret_cast<std::uintptr_t>(host) % copy_unit) +
            " bytes past a multiple of 4: offset, length and host address must be multiples of 4";
    } else if (status.error() == EOPNOTSUPP) {
        hint = "the provider of " + context().device_name() +
               " cannot copy to or from this device memory; access the memory by RDMA";
    }
    throw Error(status.error(), function, hint);
}

DeviceMemoryMR::DeviceMemoryMR(const ProtectionDomain& pd, const DeviceMemory& memory,
                               const DeviceMemoryMROptions& options)
    : Region(
          make_region(pd, memory,
                      std::make_shared<const detail::DeviceMemoryHandle>(memory.handle_), options),
          0, region_length(memory, options), options.access | Access::zero_based) {}

} // namespace rdmabuf

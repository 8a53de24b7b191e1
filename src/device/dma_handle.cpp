// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <string>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/dma_handle.hpp>

#include "device/verbs_extensions.hpp"

namespace rdmabuf {

int detail::DeallocDmah::call(ibv_dmah* handle) noexcept {
    return verbs_extensions().dealloc_dmah(handle);
}

namespace {

constexpr const char* alloc_function = "ibv_alloc_dmah";
constexpr std::uint8_t most_hints = 3; // two bits in a TLP

std::string explain(int error, const Context& context, const DmaHandleOptions& options) {
    switch (error) {
        case EPROTONOSUPPORT:
            return "this kernel's uverbs has no DMA handles; use Linux 6.17 or newer";
        case EOPNOTSUPP:
            return context.device_name() +
                   " does not support TLP processing hints: only mlx5 devices do";
        case EPERM:
            return "this process may not run on processor " +
                   std::to_string(options.cpu.value_or(0)) + ": see its affinity (taskset -p)";
        case EINVAL:
            return options.processing_hint ? std::string()
                                           : "mlx5 requires a processing hint: set processing_hint";
        default:
            return {};
    }
}

ibv_dmah* allocate_dmah(const Context& context, const DmaHandleOptions& options) {
    const std::uint8_t hint = options.processing_hint.value_or(0);
    if (hint > most_hints) {
        throw Error(EINVAL, alloc_function,
                    "a processing hint of " + std::to_string(hint) +
                        ": valid are 0 to 3 (bidirectional, requester, target, target with "
                        "priority)");
    }
    if (options.cpu.has_value() != options.memory.has_value()) {
        throw Error(EINVAL, alloc_function,
                    "cpu and memory must be set together: set both, or neither");
    }
    if (const Availability there = DmaHandle::available(); !there) {
        throw Error(ENOSYS, alloc_function, there.reason + "; " + there.remedy);
    }
    detail::DmahInitAttr attributes{};
    if (options.cpu) {
        attributes.comp_mask |= detail::dmah_cpu_id | detail::dmah_memory;
        attributes.cpu_id = *options.cpu;
        attributes.tph_mem_type = static_cast<std::uint8_t>(*options.memory);
    }
    if (options.processing_hint) {
        attributes.comp_mask |= detail::dmah_ph;
        attributes.ph = hint;
    }
    errno = 0;
    return detail::check_pointer(
        detail::verbs_extensions().alloc_dmah(detail::native_of(context, alloc_function, "Context"),
                                              &attributes),
        alloc_function, [&](int error) { return explain(error, context, options); });
}

using Handle = detail::shared_handle<ibv_dmah, detail::DeallocDmah, Context>;

} // namespace

Availability DmaHandle::available() {
    const detail::VerbsExtensions& found = detail::verbs_extensions();
    return found.reg_mr_ex != nullptr && found.alloc_dmah != nullptr &&
                   found.dealloc_dmah != nullptr
               ? Availability::yes()
               : Availability::no("this libibverbs has no ibv_alloc_dmah and ibv_reg_mr_ex",
                                  "use rdma-core 59 or newer");
}

DmaHandle::DmaHandle(const Context& context, const DmaHandleOptions& options)
    : handle_(Handle::unique(allocate_dmah(context, options),
                             Handle::unique::deleter_type::holding(context))) {}

} // namespace rdmabuf

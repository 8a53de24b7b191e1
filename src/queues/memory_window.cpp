// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <string>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/memory_window.hpp>

namespace rdmabuf {

int detail::DeallocMw::call(ibv_mw* mw) noexcept {
    return ibv_dealloc_mw(mw);
}

namespace {

constexpr const char* alloc_mw = "ibv_alloc_mw";

std::string explain(const ProtectionDomain& pd, MemoryWindowType type) {
    const ibv_device_attr device = pd.context().attributes().native.orig_attr;
    const bool has_type =
        (device.device_cap_flags &
         (type == MemoryWindowType::type_1
              ? unsigned{IBV_DEVICE_MEM_WINDOW}
              : unsigned{IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B})) != 0;
    const std::string name = pd.context().device_name();
    return "type " + std::to_string(static_cast<int>(type)) + ": " + name +
           (has_type ? " has windows of this type, at most " + std::to_string(device.max_mw)
                     : " has no windows of this type");
}

ibv_mw* allocate(const ProtectionDomain& pd, MemoryWindowType type) {
    ibv_pd* const native = detail::native_of(pd, alloc_mw, "ProtectionDomain");
    errno = 0;
    return detail::check_pointer(ibv_alloc_mw(native, static_cast<ibv_mw_type>(type)), alloc_mw,
                                 [&](int) { return explain(pd, type); });
}

} // namespace

MemoryWindow::MemoryWindow(const ProtectionDomain& pd, MemoryWindowType type)
    : MemoryWindow(adopt(pd, allocate(pd, type))) {}

MemoryWindow MemoryWindow::adopt(const ProtectionDomain& pd, ibv_mw* window) {
    return MemoryWindow(Handle(window, Handle::deleter_type::holding(pd)));
}

MemoryWindow MemoryWindow::borrow(ibv_mw* window) {
    return MemoryWindow(
        window != nullptr
            ? Handle(window, Handle::deleter_type::borrowing(ProtectionDomain::borrow(window->pd)))
            : Handle());
}

} // namespace rdmabuf

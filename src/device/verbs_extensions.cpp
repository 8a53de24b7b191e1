// SPDX-License-Identifier: BSD-3-Clause
#include "device/verbs_extensions.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <climits>
#include <string>

#include "base/address_space.hpp"

namespace rdmabuf::detail {
namespace {

#if RDMABUF_VERBS_HAVE_DMAH
static_assert(sizeof(MrInitAttr) >= sizeof(::ibv_mr_init_attr));
static_assert(offsetof(MrInitAttr, access) == offsetof(::ibv_mr_init_attr, access));
static_assert(offsetof(MrInitAttr, comp_mask) == offsetof(::ibv_mr_init_attr, comp_mask));
static_assert(offsetof(MrInitAttr, iova) == offsetof(::ibv_mr_init_attr, iova));
static_assert(offsetof(MrInitAttr, addr) == offsetof(::ibv_mr_init_attr, addr));
static_assert(offsetof(MrInitAttr, fd) == offsetof(::ibv_mr_init_attr, fd));
static_assert(offsetof(MrInitAttr, fd_offset) == offsetof(::ibv_mr_init_attr, fd_offset));
static_assert(offsetof(MrInitAttr, dmah) == offsetof(::ibv_mr_init_attr, dmah));
static_assert(sizeof(DmahInitAttr) == sizeof(::ibv_dmah_init_attr));
static_assert(offsetof(DmahInitAttr, cpu_id) == offsetof(::ibv_dmah_init_attr, cpu_id));
static_assert(offsetof(DmahInitAttr, ph) == offsetof(::ibv_dmah_init_attr, ph));
static_assert(offsetof(DmahInitAttr, tph_mem_type) == offsetof(::ibv_dmah_init_attr, tph_mem_type));
static_assert(mr_iova == IBV_REG_MR_MASK_IOVA && mr_addr == IBV_REG_MR_MASK_ADDR &&
              mr_fd == IBV_REG_MR_MASK_FD && mr_fd_offset == IBV_REG_MR_MASK_FD_OFFSET &&
              mr_dmah == IBV_REG_MR_MASK_DMAH);
static_assert(dmah_cpu_id == IBV_DMAH_INIT_ATTR_MASK_CPU_ID &&
              dmah_ph == IBV_DMAH_INIT_ATTR_MASK_PH &&
              dmah_memory == IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE);
#endif

template <class Function>
void look_up(Function*& function, void* where, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(where, name));
}

VerbsExtensions find_extensions() {
    VerbsExtensions found;
    // dlsym(3) looks up the functions without a symbol version, so that dlsym(3) also finds a
    // function that the program defines. Each function has had only one version so far.
    look_up(found.reg_mr_ex, RTLD_DEFAULT, "ibv_reg_mr_ex");
    look_up(found.alloc_dmah, RTLD_DEFAULT, "ibv_alloc_dmah");
    look_up(found.dealloc_dmah, RTLD_DEFAULT, "ibv_dealloc_dmah");
    found.mlx5_reg_dmabuf_mr = reinterpret_cast<decltype(found.mlx5_reg_dmabuf_mr)>(
        find_mlx5_function("mlx5dv_reg_dmabuf_mr"));
    found.mlx5_data_direct_path = reinterpret_cast<decltype(found.mlx5_data_direct_path)>(
        find_mlx5_function("mlx5dv_get_data_direct_sysfs_path"));
    return found;
}

/// The functions that any thread has found. Threads can search at the same time. There is no lock,
/// because a lock that a thread holds during fork(2) would stay locked in the child process.
class SharedExtensions {
  public:
    void store(const VerbsExtensions& found) noexcept {
        const auto keep = [](auto& function, auto* where) {
            if (where != nullptr) {
                function.store(where, std::memory_order_relaxed);
            }
        };
        keep(reg_mr_ex_, found.reg_mr_ex);
        keep(alloc_dmah_, found.alloc_dmah);
        keep(dealloc_dmah_, found.dealloc_dmah);
        keep(mlx5_reg_dmabuf_mr_, found.mlx5_reg_dmabuf_mr);
        keep(mlx5_data_direct_path_, found.mlx5_data_direct_path);
    }
    [[nodiscard]] VerbsExtensions load() const noexcept {
        return {.reg_mr_ex = reg_mr_ex_,
                .alloc_dmah = alloc_dmah_,
                .dealloc_dmah = dealloc_dmah_,
                .mlx5_reg_dmabuf_mr = mlx5_reg_dmabuf_mr_,
                .mlx5_data_direct_path = mlx5_data_direct_path_};
    }

  private:
    std::atomic<decltype(VerbsExtensions::reg_mr_ex)> reg_mr_ex_{nullptr};
    std::atomic<decltype(VerbsExtensions::alloc_dmah)> alloc_dmah_{nullptr};
    std::atomic<decltype(VerbsExtensions::dealloc_dmah)> dealloc_dmah_{nullptr};
    std::atomic<decltype(VerbsExtensions::mlx5_reg_dmabuf_mr)> mlx5_reg_dmabuf_mr_{nullptr};
    std::atomic<decltype(VerbsExtensions::mlx5_data_direct_path)> mlx5_data_direct_path_{nullptr};
};

} // namespace

void* find_provider_function(const char* library, const char* name) noexcept {
    if (void* const function = ::dlsym(RTLD_DEFAULT, name); function != nullptr) {
        return function;
    }
    // libibverbs loads provider libraries with RTLD_LOCAL, so dlsym(RTLD_DEFAULT) does not find the
    // functions of these libraries. With RTLD_NOLOAD, dlopen(3) returns the library only if it is
    // already loaded. The library is never closed, because its function is called later.
    void* const provider = ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    return provider != nullptr ? ::dlsym(provider, name) : nullptr;
}

VerbsExtensions verbs_extensions() {
    static SharedExtensions shared;
    static std::atomic<unsigned long long> searched{0};
    // The count of loaded objects is read before the lookup. If another thread loads a library
    // during the lookup, the next call reads a different count and looks up the functions again.
    const unsigned long long objects = loaded_objects();
    const bool is_current = objects == searched.load(std::memory_order_acquire);
    VerbsExtensions found = shared.load();
    if (!is_current && !found.complete()) {
        found = find_extensions();
        shared.store(found);
        searched.store(objects, std::memory_order_release);
    }
    return found;
}

Availability data_direct_of(const ibv_context* context) {
    const VerbsExtensions extensions = verbs_extensions();
    if (extensions.mlx5_reg_dmabuf_mr == nullptr) {
        return data_direct_function();
    }
    const std::string device = context->device->name;
    if (extensions.mlx5_data_direct_path == nullptr) {
        return Availability::no(
            "this libmlx5 cannot report if " + device + " has a data-direct function",
            "use rdma-core 54 or newer");
    }
    std::array<char, PATH_MAX> path{};
    const int error = extensions.mlx5_data_direct_path(const_cast<ibv_context*>(context),
                                                       path.data(), path.size());
    if (error == 0) {
        return Availability::yes(path.data());
    }
    return Availability::no(
        device + " has no data-direct function, or this kernel does not support data direct",
        "use an mlx5 NIC with a data-direct function, and Linux 6.12");
}

Availability data_direct_function() {
    if (verbs_extensions().mlx5_reg_dmabuf_mr != nullptr) {
        return Availability::yes();
    }
    return Availability::no(
        "mlx5dv_reg_dmabuf_mr was not found: libmlx5 is not loaded because this machine has no "
        "mlx5 NIC, or libmlx5 is older than rdma-core 54",
        "on a machine with an mlx5 NIC, use rdma-core 54 and Linux 6.12 or newer");
}

} // namespace rdmabuf::detail

// SPDX-License-Identifier: BSD-3-Clause
#include "objects/memory_region.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <unordered_set>
#include <utility>

#include "objects/cuda_memory.hpp"
#include "objects/device_file.hpp"
#include "objects/mapping.hpp"
#include "objects/process.hpp"

namespace softverbs {
namespace {

constexpr unsigned host_access = IBV_ACCESS_LOCAL_WRITE | remote_access | IBV_ACCESS_MW_BIND |
                                 IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;
constexpr unsigned dmabuf_access =
    IBV_ACCESS_LOCAL_WRITE | remote_access | IBV_ACCESS_RELAXED_ORDERING;
/// The access flags that require writable memory, as in the kernel's ib_access_writable().
constexpr unsigned writing_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr std::uint64_t no_end = std::numeric_limits<std::uint64_t>::max();

std::unordered_set<const ibv_mr*>& alive() {
    static auto* const regions = new std::unordered_set<const ibv_mr*>;
    return *regions;
}

bool has_same_page_offset(std::uint64_t one, std::uint64_t other) {
    return ((one ^ other) & (page_size() - 1)) == 0;
}

std::unique_ptr<Mr> new_region(Mr::Kind kind) {
    auto mr = std::make_unique<Mr>();
    mr->kind = kind;
    return mr;
}

bool has_on_demand(const Device& device) {
    return (device.attributes.odp_caps.general_caps & std::uint64_t{IBV_ODP_SUPPORT}) != 0;
}

int check_host_access(const Device& device, unsigned access) {
    if ((access & ~(host_access | static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE))) != 0 ||
        !is_consistent(access)) {
        return EINVAL;
    }
    return (access & IBV_ACCESS_ON_DEMAND) == 0 || has_on_demand(device) ? 0 : EOPNOTSUPP;
}

/// Returns whether the length is 0 and the start is page-aligned. The kernel rejects such a range
/// with EINVAL, because it contains no page. If the start is not page-aligned, the kernel pins one
/// page (ib_umem_get(), ib_umem_dmabuf_get()).
bool has_no_page(std::uint64_t start, std::size_t length) {
    return length == 0 && start % page_size() == 0;
}

/// Calls populate(), which faults in the pages of the range, without Process::lock. populate() is
/// slow for large regions, and it calls madvise(), which the program may intercept in order to call
/// verbs.
bool populate_unlocked(const void* address, std::size_t length, bool write) {
    const Unlocked unlocked;
    return populate(address, length, write, false);
}

/// Checks the address range of a region. Unless the region is on-demand, also faults in its pages,
/// and releases Process::lock while it does so. Returns 0, EINVAL (the range is invalid or too
/// long) or EFAULT (a page cannot be accessed).
int check_host_memory(const Device& device, const void* address, std::size_t length,
                      unsigned access) {
    const bool on_demand = (access & IBV_ACCESS_ON_DEMAND) != 0;
    const auto start = reinterpret_cast<std::uintptr_t>(address);
    if (has_no_page(start, length) || length > device.attributes.orig_attr.max_mr_size ||
        !lies_within(start, length, no_end - page_size() + 1)) {
        return EINVAL;
    }
    if (on_demand) {
        return 0;
    }
    const bool write = (access & writing_access) != 0;
    return populate_unlocked(address, std::max<std::size_t>(length, 1), write) ? 0 : EFAULT;
}

/// Maps a dma-buf for the CPU, or, if this is not possible, finds CUDA memory at the address @p
/// iova. On failure, returns false and sets errno.
bool find_memory(Mr& mr, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                 bool write) {
    mr.mapping = map_descriptor(fd, write);
    if (mr.mapping != nullptr && lies_within(offset, length, mr.mapping->length)) {
        mr.grant.base = mr.mapping->data + offset;
        return true;
    }
    if (mr.mapping != nullptr) {
        release(std::exchange(mr.mapping, nullptr));
        errno = EINVAL;
        return false;
    }
    // The exporter of this dma-buf does not support mmap(2). The memory may be CUDA memory whose
    // address is iova.
    if (errno == EINVAL && lies_within(offset, length, length_of_descriptor(fd))) {
        mr.cuda = find_cuda_memory(iova, length);
        mr.grant.base = mr.cuda != nullptr ? reinterpret_cast<std::byte*>(iova) : nullptr;
        errno = EINVAL;
    }
    return mr.cuda != nullptr;
}

/// Returns the values that another process needs to import the region. The caller stores them in
/// the object table.
SharedMemory shared_memory(const Mr& mr) noexcept {
    SharedMemory shared{.pd = mr.grant.pd->handle,
                        .key = mr.grant.lkey,
                        .access = mr.grant.access,
                        .iova = mr.grant.iova,
                        .length = mr.length};
    if (mr.mapping != nullptr) {
        shared.fd = mr.mapping->fd;
        shared.inode = mr.mapping->identity.number;
        shared.offset = mr.mapping_offset;
    }
    return shared;
}

} // namespace

Mr* enlist(std::unique_ptr<Mr> mr, Pd& pd) {
    static std::uint32_t handles = 0;
    Mr& region = *mr;
    try {
        alive().insert(&region);
        if (may_create(SOFTVERBS_MR, device_of(pd).attributes.orig_attr.max_mr)) {
            region.grant.lkey = process().keys.insert(region.grant);
        }
    } catch (const std::bad_alloc&) {
        region.grant.lkey = 0;
    }
    if (region.grant.lkey == 0) {
        alive().erase(&region);
        release(region.mapping);
        return fail(ENOMEM);
    }
    region.context = pd.context;
    region.pd = &pd;
    region.handle = ++handles;
    if (region.kind != Mr::Kind::null) {
        region.grant.rkey = KeyTable::remote_key(region.grant.lkey);
    }
    region.lkey = region.grant.lkey;
    region.rkey = region.grant.rkey;
    region.grant.pd = pd.protection;
    region.grant.mr = &region;
    ++region.grant.pd->users;
    ++process().live[SOFTVERBS_MR];
    region.shared = context_of(pd).file->table.add(SharedObject::Kind::mr, region.handle,
                                                   shared_memory(region));
    return mr.release();
}

namespace {

/// Registers the whole address space, for implicit on-demand paging. Pages are faulted in when a
/// work request uses them.
Mr* reg_implicit_mr(Pd& pd, std::uint64_t iova, unsigned access) {
    const Device& device = device_of(pd);
    const bool supported =
        (device.attributes.odp_caps.general_caps & std::uint64_t{IBV_ODP_SUPPORT_IMPLICIT}) != 0;
    int error = check_host_access(device, access);
    if (error == 0 && (!supported || iova != 0)) {
        error = EINVAL; // as in the kernel's mlx5_ib
    }
    if (error != 0) {
        return fail(error);
    }
    std::unique_ptr<Mr> mr = new_region(Mr::Kind::host);
    mr->length = SIZE_MAX;
    // Start the region at the second page of the address space: a base address of 0 would mean a
    // null memory region.
    mr->grant = {.access = access,
                 .iova = page_size(),
                 .length = SIZE_MAX - page_size(),
                 .base = reinterpret_cast<std::byte*>(page_size())};
    return enlist(std::move(mr), pd);
}

} // namespace

Mr* reg_host_mr(Pd& pd, void* address, std::size_t length, std::uint64_t iova, unsigned access) {
    const Device& device = device_of(pd);
    if ((access & IBV_ACCESS_ON_DEMAND) != 0 && address == nullptr && length == SIZE_MAX) {
        return reg_implicit_mr(pd, iova, access);
    }
    // As in the kernel, the address and the iova must have the same offset in a page, even for a
    // zero-based region.
    if (!has_same_page_offset(reinterpret_cast<std::uintptr_t>(address), iova)) {
        return fail(EINVAL);
    }
    if ((access & IBV_ACCESS_ZERO_BASED) != 0) {
        iova = 0;
    }
    int error = check_host_access(device, access);
    if (error == 0 && !lies_within(iova, length, no_end)) {
        error = EINVAL;
    }
    if (error == 0) {
        ++pd.protection->users;
        error = check_host_memory(device, address, length, access);
        --pd.protection->users;
    }
    if (error != 0) {
        return fail(error);
    }
    std::unique_ptr<Mr> mr = new_region(Mr::Kind::host);
    mr->addr = address;
    mr->length = length;
    mr->grant = {
        .access = access, .iova = iova, .length = length, .base = static_cast<std::byte*>(address)};
    return enlist(std::move(mr), pd);
}

Mr* reg_dmabuf_mr(Pd& pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                  unsigned access) {
    const Device& device = device_of(pd);
    if (!device.has(SOFTVERBS_FEATURE_DMABUF)) {
        return fail(EOPNOTSUPP);
    }
    if (device.rules.dmabuf_error != 0) {
        return fail(device.rules.dmabuf_error);
    }
    if ((access & ~dmabuf_access) != 0 || !is_consistent(access) ||
        !has_same_page_offset(offset, iova)) {
        return fail(EINVAL);
    }
    // As drivers do, check the access flags before the dma-buf descriptor.
    if ((access & device.rules.dmabuf_refused_access) != 0) {
        return fail(EOPNOTSUPP);
    }
    if (has_no_page(offset, length) || length > device.attributes.orig_attr.max_mr_size ||
        !lies_within(iova, length, no_end)) {
        return fail(EINVAL);
    }
    std::unique_ptr<Mr> mr = new_region(Mr::Kind::dmabuf);
    if (!find_memory(*mr, offset, length, iova, fd, (access & IBV_ACCESS_LOCAL_WRITE) != 0) &&
        !device.rules.dmabuf_unchecked) {
        return nullptr;
    }
    if (device.rules.dmabuf_attach_error != 0) {
        release(mr->mapping);
        return fail(device.rules.dmabuf_attach_error);
    }
    // As libibverbs does, set ibv_mr::addr to the offset of the region in the dma-buf. It is not an
    // address.
    mr->addr = reinterpret_cast<void*>(static_cast<std::uintptr_t>(offset));
    mr->length = length;
    mr->mapping_offset = offset;
    mr->grant.access = access;
    mr->grant.iova = iova;
    mr->grant.length = length;
    return enlist(std::move(mr), pd);
}

Mr* alloc_null_mr(Pd& pd) {
    std::unique_ptr<Mr> mr = new_region(Mr::Kind::null);
    // A null memory region has no rkey. All addresses are valid for its lkey.
    mr->grant.access = IBV_ACCESS_LOCAL_WRITE;
    mr->grant.length = SIZE_MAX;
    return enlist(std::move(mr), pd);
}

int rereg_mr(Mr& mr, int flags, Pd* pd, void* address, std::size_t length, int access) {
    const bool new_translation = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    const bool new_access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
    const bool new_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
    // Except for the checks of the kind of the region and of the PD, ibv_rereg_mr() in libibverbs
    // makes these checks before it calls the provider.
    if (mr.kind != Mr::Kind::host || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 ||
        (new_translation && (address == nullptr || length == 0)) || (access != 0 && !new_access) ||
        (new_pd && pd == nullptr)) {
        errno = EINVAL;
        return IBV_REREG_MR_ERR_INPUT;
    }
    const Device& device = device_of(mr);
    const unsigned flags_after = new_access ? static_cast<unsigned>(access) : mr.grant.access;
    void* const address_after = new_translation ? address : mr.addr;
    const std::size_t length_after = new_translation ? length : mr.length;
    int error = flags == 0 || (new_pd && pd->context != mr.context) ? EINVAL : 0;
    if (error == 0 && mr.users != 0) {
        error = EBUSY; // memory windows are bound to the region
    }
    if (error == 0) {
        error = check_host_access(device, flags_after);
    }
    if (error == 0 && (new_translation || new_access)) {
        error = check_host_memory(device, address_after, length_after, flags_after);
        if (error == 0 && mr.users != 0) {
            error = EBUSY; // bound while the lock was released
        }
    }
    if (error != 0) {
        errno = error;
        return IBV_REREG_MR_ERR_CMD;
    }
    process().engine.withdraw_responses();
    if (new_pd) {
        --mr.grant.pd->users;
        mr.pd = pd;
        mr.grant.pd = pd->protection;
        ++mr.grant.pd->users;
    }
    if (new_translation) {
        mr.addr = address;
        mr.length = mr.grant.length = length;
        mr.grant.base = static_cast<std::byte*>(address);
        mr.grant.iova = (flags_after & IBV_ACCESS_ZERO_BASED) != 0
                            ? 0
                            : reinterpret_cast<std::uintptr_t>(address);
    }
    mr.grant.access = flags_after;
    process().engine.wait_for_writes();
    return 0;
}

int dereg_mr(Mr& mr) {
    if (mr.users != 0) {
        return busy();
    }
    process().keys.erase(mr.grant.lkey);
    context_of(mr).file->table.remove(mr.shared);
    process().engine.withdraw_responses();
    alive().erase(&mr);
    process().engine.wait_for_writes();
    --mr.grant.pd->users;
    --process().live[SOFTVERBS_MR];
    Mapping* const mapping = mr.mapping;
    DeviceMemory* const device_memory = mr.device_memory;
    delete &mr;
    // Call release() and end_region() after the region was deleted, because they release
    // Process::lock temporarily. Other threads could otherwise use the region.
    release(mapping);
    if (device_memory != nullptr) {
        end_region(*device_memory);
    }
    return 0;
}

bool is_alive(const ibv_mr* mr) {
    return alive().contains(mr);
}

int advise_mr(Pd& pd, ibv_advise_mr_advice advice, std::uint32_t flags,
              std::span<const ibv_sge> entries) {
    const bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    const bool known = write || advice == IBV_ADVISE_MR_ADVICE_PREFETCH ||
                       advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
    if (!has_on_demand(device_of(pd)) || !known) {
        return EOPNOTSUPP;
    }
    if ((flags & ~static_cast<unsigned>(IBV_ADVISE_MR_FLAG_FLUSH)) != 0 || entries.empty()) {
        return EINVAL;
    }
    for (const ibv_sge& entry : entries) {
        const Grant* const grant = process().keys.find_local(entry.lkey);
        // Reject the advice for a region that is neither a dma-buf region nor an on-demand region,
        // because its pages are pinned.
        if (grant == nullptr ||
            (grant->mr->kind != Mr::Kind::dmabuf && (grant->access & IBV_ACCESS_ON_DEMAND) == 0)) {
            return ENOENT;
        }
        if (grant->pd != pd.protection ||
            (write && (grant->access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
            return EPERM;
        }
        if (grant->revoked || entry.addr < grant->iova ||
            !lies_within(entry.addr - grant->iova, entry.length, grant->length)) {
            return EFAULT;
        }
        if (grant->mr->kind == Mr::Kind::host && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT &&
            !populate_unlocked(grant->base + (entry.addr - grant->iova), entry.length, write)) {
            return EFAULT;
        }
    }
    return 0;
}

void revoke(Mr& mr) {
    mr.grant.revoked = true;
    if (mr.context != nullptr) {
        context_of(mr).file->table.remove(std::exchange(mr.shared, nullptr));
    }
    process().engine.withdraw_responses();
    process().engine.wait_for_writes();
}

} // namespace softverbs

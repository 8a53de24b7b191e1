// SPDX-License-Identifier: BSD-3-Clause
#include "registration/region_maker.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/region.hpp>

#include "base/address_space.hpp"
#include "memory/checks.hpp"
#include "memory/dmabuf_diagnosis.hpp"

namespace rdmabuf::detail {
namespace {

/// Returns the error hint (cause and remedy) for a failed mlx5dv_reg_dmabuf_mr(). EINVAL and
/// EOPNOTSUPP have many causes. For these errors, the NIC is therefore queried first: it may have
/// no data-direct PCI function.
std::string diagnose_data_direct(const Context& context, const DmaBufRange& range, Access access,
                                 int error) {
    if (error == EINVAL || error == EOPNOTSUPP) {
        const Availability direct = data_direct_of(context.native());
        if (!direct) {
            return direct.reason + "; " + direct.remedy;
        }
    }
    return diagnose_dmabuf(context, range, inspect_descriptor(range.fd), access, error);
}

/// Prefetches the first page of an on-demand region. If the NIC cannot access this memory by
/// on-demand paging, the registration fails now, and not a later data transfer. If the provider
/// does not support prefetch, this check is skipped.
AnyRegion prefetched(AnyRegion region) {
    try {
        const bool writes = has(region.access(), Access::local_write);
        region.prefetch(0, 1, {.pages = writes ? Prefetch::write : Prefetch::read, .wait = true});
    } catch (const Error& error) {
        if (error.error() != EOPNOTSUPP) {
            throw Error(error.error(), error.function(),
                        "the first page cannot be faulted for the NIC: it is not mapped, or the "
                        "kernel does not page this memory for devices (CONFIG_HMM_MIRROR and the "
                        "memory's driver)");
        }
    }
    return region;
}

} // namespace

RangePieces::RangePieces(std::uintptr_t address, std::size_t length, std::size_t chunk)
    : whole_(length),
      first_(chunk != 0 ? std::min(chunk - address % page_size(), length) : length),
      chunk_(chunk) {
    const std::size_t rest = whole_ - first_;
    count_ = 1 + (chunk_ != 0 ? rest / chunk_ + (rest % chunk_ != 0 ? 1 : 0) : 0);
}

RangePiece RangePieces::operator[](std::size_t i) const noexcept {
    if (i == 0) {
        return {.offset = 0, .length = first_};
    }
    const std::size_t offset = first_ + (i - 1) * chunk_;
    return {.offset = offset, .length = std::min(chunk_, whole_ - offset)};
}

std::size_t RangePieces::at(std::size_t offset) const noexcept {
    return offset < first_ ? 0 : 1 + (offset - first_) / chunk_;
}

AnyRegion RegionMaker::make(const RangePiece& piece) const {
    const std::uint64_t piece_iova = iova + piece.offset;
    const std::uintptr_t start = address + piece.offset;
    if (!is_dmabuf(path)) {
        return make_address(reinterpret_cast<void*>(start), piece.length, piece_iova);
    }
    const bool shared = exported_parts.empty();
    const std::size_t part = shared ? 0 : parts.at(piece.offset);
    const ExportedRange& dmabuf = shared ? *exported : exported_parts[part];
    const DmaBufRange range{
        .fd = dmabuf.fd(),
        .offset = dmabuf.offset() + piece.offset - (shared ? 0 : parts[part].offset),
        .length = piece.length,
        .address = start};
    return path == RegistrationPath::dmabuf_data_direct ? make_data_direct(range, piece_iova)
                                                        : make_dmabuf(range, piece_iova);
}

AnyRegion RegionMaker::make_dmabuf(const DmaBufRange& range, std::uint64_t piece_iova) const {
    if (dma_handle == nullptr) {
        return DmaBufMR(*pd, range, {.access = access, .iova = piece_iova});
    }
    MrInitAttr attributes{};
    attributes.comp_mask = mr_fd | mr_fd_offset;
    attributes.fd = range.fd;
    attributes.fd_offset = range.offset;
    return make_with_handle(attributes, piece_iova, range.length, [&](int error) {
        return diagnose_dmabuf(pd->context(), range, inspect_descriptor(range.fd), access, error);
    });
}

AnyRegion RegionMaker::make_data_direct(const DmaBufRange& range, std::uint64_t piece_iova) const {
    // With data direct, the driver requires a start at a page boundary. The region therefore begins
    // at the start of the page that contains the first byte.
    const std::size_t before = piece_iova % page_size();
    auto deleter = RegionHandle::deleter_type::holding(*pd, nullptr);
    errno = 0;
    RegionHandle handle(
        check_pointer(
            verbs_extensions().mlx5_reg_dmabuf_mr(
                pd->native(), range.offset - before, range.length + before, piece_iova - before,
                range.fd, static_cast<int>(access), mlx5_data_direct),
            reg_data_direct_function,
            [&](int error) { return diagnose_data_direct(pd->context(), range, access, error); }),
        std::move(deleter));
    return {std::move(handle), piece_iova, range.length, access};
}

AnyRegion RegionMaker::make_address(void* start, std::size_t length,
                                    std::uint64_t piece_iova) const {
    if (path == RegistrationPath::on_demand) {
        return prefetched(MemoryRegion(*pd, start, length, {.access = access, .iova = piece_iova}));
    }
    if (dma_handle == nullptr) {
        return MemoryRegion(*pd, start, length, {.access = access, .iova = piece_iova});
    }
    check_host_region(start, length, piece_iova, access, reg_mr_ex_function);
    MrInitAttr attributes{};
    attributes.comp_mask = mr_addr;
    attributes.addr = start;
    return make_with_handle(attributes, piece_iova, length, [](int error) -> std::string {
        return error == EFAULT ? "these pages cannot be pinned" : std::string();
    });
}

template <class Explain>
AnyRegion RegionMaker::make_with_handle(MrInitAttr attributes, std::uint64_t piece_iova,
                                        std::size_t length, Explain explain) const {
    attributes.length = length;
    attributes.access = static_cast<int>(access);
    attributes.comp_mask |= mr_iova | mr_dmah;
    attributes.iova = piece_iova;
    attributes.dmah = dma_handle->native();
    auto deleter =
        RegionHandle::deleter_type::holding(*pd, std::make_shared<const DmaHandle>(*dma_handle));
    errno = 0;
    RegionHandle handle(check_pointer(verbs_extensions().reg_mr_ex(pd->native(), &attributes),
                                      reg_mr_ex_function, explain),
                        std::move(deleter));
    return {std::move(handle), piece_iova, length, access};
}

} // namespace rdmabuf::detail

// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <linux/vfio.h>

#include <cerrno>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/vfio.hpp>

#include "base/address_space.hpp"
#include "base/file_descriptor.hpp"
#include "base/text.hpp"
#include "common/buffer_table.hpp"
#include "common/mapping.hpp"
#include "common/table_exporter.hpp"
#include "vfio/dma_buf_feature.hpp"

namespace rdmabuf {
namespace {

constexpr const char* name_of_exporter = "vfio";
constexpr const char* add_call = "add";
constexpr const char* info_call = "ioctl(VFIO_DEVICE_GET_REGION_INFO)";
constexpr const char* feature_call = "ioctl(VFIO_DEVICE_FEATURE)";

/// Holds the objects that must exist while an AddedRange exists, or while a range that was exported
/// from this AddedRange exists.
struct Kept {
    std::shared_ptr<const UniqueFd> device;
    std::optional<detail::ReservedAddresses> addresses;
};

std::string describe(const VfioRegion& region) {
    return std::to_string(region.length) + " bytes at offset " + std::to_string(region.offset) +
           " of region " + std::to_string(region.index);
}

/// Returns the error for @p error, an errno value that concerns the whole device, not one range.
ErrorInfo no_feature(int error, const char* function) {
    switch (error) {
        case ENOTTY:
        case EINVAL: // From a probe: its arguments are valid, so the kernel lacks the feature.
            return {error, function,
                    "this kernel does not support VFIO_DEVICE_FEATURE_DMA_BUF, or the descriptor "
                    "is not that of a VFIO device",
                    "use Linux 6.19 or newer with CONFIG_VFIO_PCI_DMABUF"};
        case EOPNOTSUPP:
            return {error, function, "the VFIO driver of this device does not export its BARs",
                    "bind the device to vfio-pci, on a kernel with "
                    "CONFIG_PCI_P2PDMA"};
        case ENODEV:
            return {error, function, "the device was removed, or is being removed"};
        case EBADF:
            return {error, function, "the descriptor passed to make_vfio_exporter() was not open",
                    "make the exporter while the descriptor of the VFIO device is open"};
        default:
            return {error, function,
                    "VFIO_DEVICE_FEATURE_DMA_BUF cannot be used: " + describe_errno(error)};
    }
}

/// Calls the ioctl VFIO_DEVICE_FEATURE for VFIO_DEVICE_FEATURE_DMA_BUF.
/// @return a dma-buf descriptor, 0 if @p operation is a probe, or -1 with errno if the call failed
int ask_feature(int device, __u32 operation, const VfioRegion& region) noexcept {
    detail::VfioDmaBufRequest request{.argsz = sizeof(request),
                                      .feature_flags = operation | detail::vfio_feature_dma_buf,
                                      .region_index = region.index,
                                      .open_flags = O_RDWR | O_CLOEXEC,
                                      .flags = 0,
                                      .nr_ranges = 1,
                                      .offset = region.offset,
                                      .length = region.length};
    return detail::ioctl_retrying(device, VFIO_DEVICE_FEATURE, &request);
}

UniqueFd export_pages(int device, const VfioRegion& region) {
    UniqueFd dmabuf(ask_feature(device, VFIO_DEVICE_FEATURE_GET, region));
    if (!dmabuf) {
        const int error = errno;
        throw Error(error, feature_call,
                    describe(region) + ": " +
                        (error == EINVAL ? "the kernel exports only memory BARs, not I/O BARs, and "
                                           "only with CONFIG_PCI_P2PDMA"
                                         : no_feature(error, feature_call).hint()));
    }
    return dmabuf;
}

/// Returns the size of a region in bytes; 0 for a BAR that the device does not have.
/// @throws Error with the errno value of the ioctl: ENOTTY if the descriptor is not that of a VFIO
///         device
std::uint64_t region_size(int device, std::uint32_t index) {
    vfio_region_info info{};
    info.argsz = sizeof(info);
    info.index = index;
    if (detail::ioctl_retrying(device, VFIO_DEVICE_GET_REGION_INFO, &info) < 0) {
        const int error = errno;
        throw Error(
            error, info_call,
            "region " + std::to_string(index) +
                (error == ENOTTY ? " cannot be queried: the descriptor is not that of a VFIO device"
                                 : ""));
    }
    return info.size;
}

/// Checks @p region, and returns the region. A length of 0 is replaced by the length up to the end
/// of the region. For an invalid region the kernel returns only an errno; the errors of this
/// function name the cause.
VfioRegion checked(int device, VfioRegion region) {
    if (region.index >= VFIO_PCI_ROM_REGION_INDEX) {
        throw Error(ENODEV, add_call,
                    "region " + std::to_string(region.index) +
                        " is not a BAR: the BARs are the regions 0 to 5");
    }
    const std::uint64_t size = region_size(device, region.index);
    if (size == 0) {
        throw Error(EINVAL, add_call,
                    "the device does not have BAR " + std::to_string(region.index));
    }
    if (region.length == 0 && region.offset < size) {
        region.length = size - region.offset;
    }
    if (region.offset >= size || region.length > size - region.offset) {
        throw Error(ERANGE, add_call,
                    describe(region) + ", which has " + std::to_string(size) + " bytes");
    }
    const std::size_t page = detail::page_size();
    if (region.offset % page != 0 || region.length % page != 0) {
        throw Error(EINVAL, add_call,
                    describe(region) + ": offset and length must be multiples of the page size, " +
                        std::to_string(page) + " bytes");
    }
    if (region.address % page != 0) {
        throw Error(EINVAL, add_call,
                    describe(region) + " cannot be mapped at " +
                        detail::hexadecimal(region.address) +
                        ", because a BAR begins at a page and this address lies " +
                        std::to_string(region.address % page) + " bytes into its page");
    }
    if (region.length > std::numeric_limits<std::uintptr_t>::max() - region.address) {
        throw Error(EINVAL, add_call,
                    describe(region) + " do not fit into the address space after " +
                        detail::hexadecimal(region.address));
    }
    return region;
}

class BarExporter final : public detail::TableExporter<VfioExporter> {
  public:
    /// @param device_error  errno if the descriptor of the device could not be duplicated,
    ///                      otherwise 0
    BarExporter(UniqueFd device, int device_error, std::string pci_address)
        : TableExporter(name_of_exporter),
          device_(std::make_shared<const UniqueFd>(std::move(device))),
          device_error_(device_error),
          pci_address_(std::move(pci_address)) {}

    [[nodiscard]] Availability availability() const override {
        if (device_error_ != 0) {
            return no_feature(device_error_, "fcntl").availability();
        }
        if (ask_feature(device_->get(), VFIO_DEVICE_FEATURE_GET | VFIO_DEVICE_FEATURE_PROBE, {}) <
            0) {
            return no_feature(errno, feature_call).availability();
        }
        return Availability::yes("BARs of the VFIO device" +
                                 (pci_address_.empty() ? "" : " " + pci_address_));
    }

    [[nodiscard]] AddedRange add(const VfioRegion& wanted) override {
        if (device_error_ != 0) {
            no_feature(device_error_, "fcntl").raise();
        }
        const VfioRegion region = checked(device_->get(), wanted);
        auto kept = std::make_shared<Kept>(Kept{.device = device_, .addresses = std::nullopt});
        if (region.address == 0) {
            kept->addresses.emplace(region.length);
        }
        Allocation allocation{
            .base = kept->addresses ? kept->addresses->start() : region.address,
            .length = region.length,
            .generation = 0,
            .kind = MemoryKind::device,
            .pci_address = pci_address_,
        };
        UniqueFd dmabuf = export_pages(device_->get(), region);
        return detail::add_range(table_, std::move(allocation), std::move(dmabuf), 0,
                                 std::move(kept));
    }

  private:
    std::shared_ptr<const UniqueFd> device_;
    int device_error_;
    std::string pci_address_;
};

} // namespace

std::shared_ptr<VfioExporter> make_vfio_exporter(int device, std::string pci_address) {
    UniqueFd copy(::fcntl(device, F_DUPFD_CLOEXEC, 0));
    const int error = copy ? 0 : errno;
    return std::make_shared<BarExporter>(std::move(copy), error, std::move(pci_address));
}

} // namespace rdmabuf

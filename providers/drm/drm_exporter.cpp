// SPDX-License-Identifier: BSD-3-Clause
#include <drm.h>
#include <fcntl.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <utility>

#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/drm.hpp>

#include "base/address_space.hpp"
#include "base/file_descriptor.hpp"
#include "common/dmabuf_allocator.hpp"
#include "drm/drm_node.hpp"

namespace rdmabuf {
namespace {

constexpr const char* create_call = "ioctl(DRM_IOCTL_MODE_CREATE_DUMB)";

std::string asked(std::size_t size, const detail::DrmNode& node) {
    return std::to_string(size) + " bytes were requested from " + node.path + " (" + node.driver +
           ")";
}

/// Owns the handle of a dumb buffer. The memory stays allocated while its dma-buf or a mapping
/// exists, even after the handle is destroyed.
class DumbBuffer {
  public:
    /// @param size  in bytes; a multiple of the page size
    DumbBuffer(const detail::DrmNode& node, std::size_t size) : node_(node.fd.get()) {
        // Some drivers round up the length of a row, for example to 64 bytes. Rows of one page need
        // no rounding, so the buffer has one row, with pixels of 32 bits, for each page. The kernel
        // computes the size of a dumb buffer in 32 bits, which limits the number of rows.
        const std::size_t row = detail::page_size();
        const std::size_t largest = std::numeric_limits<std::uint32_t>::max() / row * row;
        if (size > largest) {
            throw Error(
                EINVAL, create_call,
                asked(size, node) + "; a dumb buffer holds at most " + std::to_string(largest));
        }
        constexpr std::uint32_t bits_per_pixel = 32;
        drm_mode_create_dumb request{};
        request.bpp = bits_per_pixel;
        request.width = static_cast<std::uint32_t>(row / (bits_per_pixel / 8));
        request.height = static_cast<std::uint32_t>(size / row);
        if (detail::ioctl_retrying(node_, DRM_IOCTL_MODE_CREATE_DUMB, &request) < 0) {
            throw Error(errno, create_call, asked(size, node));
        }
        handle_ = request.handle;
        size_ = request.size;
    }
    DumbBuffer(const DumbBuffer&) = delete;
    DumbBuffer& operator=(const DumbBuffer&) = delete;
    ~DumbBuffer() {
        // After fork(2), the child process shares the DRM file with its parent. Only the parent
        // destroys the handle, because the parent still uses the handle.
        if (!creator_.is_current()) {
            return;
        }
        drm_mode_destroy_dumb request{.handle = handle_};
        if (detail::ioctl_retrying(node_, DRM_IOCTL_MODE_DESTROY_DUMB, &request) < 0) {
            detail::report_teardown_failure("ioctl(DRM_IOCTL_MODE_DESTROY_DUMB)", errno);
        }
    }

    /// Returns the size in bytes, which the driver may have rounded up.
    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

    [[nodiscard]] UniqueFd export_dmabuf() const {
        drm_prime_handle request{.handle = handle_, .flags = DRM_CLOEXEC | DRM_RDWR, .fd = -1};
        if (detail::ioctl_retrying(node_, DRM_IOCTL_PRIME_HANDLE_TO_FD, &request) < 0) {
            throw Error(errno, "ioctl(DRM_IOCTL_PRIME_HANDLE_TO_FD)");
        }
        return UniqueFd(request.fd);
    }

    /// Maps the buffer through the DRM node. Some drivers do not support mmap(2) of their dma-bufs,
    /// but all drivers with dumb buffers support DRM_IOCTL_MODE_MAP_DUMB.
    [[nodiscard]] detail::Mapping map() const {
        drm_mode_map_dumb request{};
        request.handle = handle_;
        if (detail::ioctl_retrying(node_, DRM_IOCTL_MODE_MAP_DUMB, &request) < 0) {
            throw Error(errno, "ioctl(DRM_IOCTL_MODE_MAP_DUMB)");
        }
        return {node_, size_, static_cast<off_t>(request.offset)};
    }

  private:
    int node_;
    detail::CreatorProcess creator_;
    std::uint32_t handle_ = 0;
    std::uint64_t size_ = 0;
};

class DrmExporter final : public detail::DmaBufAllocator {
  public:
    explicit DrmExporter(DrmOptions options)
        : DmaBufAllocator("drm"), options_(std::move(options)) {}

    [[nodiscard]] Availability availability() const override {
        const auto node = detail::open_drm_node(options_);
        if (!node) {
            return node.error_info().availability();
        }
        const auto& found = *node;
        return Availability::yes(found.path + ", " + found.driver);
    }

  protected:
    [[nodiscard]] NewBuffer make(std::size_t size) const override {
        detail::DrmNode node = detail::open_drm_node(options_).value();
        const DumbBuffer dumb(node, size);
        if (dumb.size() < size) {
            throw Error(EIO, create_call,
                        asked(size, node) + "; number of bytes that the driver allocated: " +
                            std::to_string(dumb.size()));
        }
        UniqueFd dmabuf = dumb.export_dmabuf();
        detail::Mapping mapping = dumb.map();
        return {.dmabuf = std::move(dmabuf),
                .mapping = std::move(mapping),
                .kind = node.pci_address.empty() ? MemoryKind::system : MemoryKind::device,
                .pci_address = node.pci_address};
    }

  private:
    DrmOptions options_;
};

} // namespace

std::shared_ptr<Allocator> make_drm_exporter(const DrmOptions& options) {
    return std::make_shared<DrmExporter>(options);
}

} // namespace rdmabuf

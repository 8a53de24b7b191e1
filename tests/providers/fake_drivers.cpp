// SPDX-License-Identifier: BSD-3-Clause
#include <drm.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <linux/vfio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "fake_kernel.hpp"
#include "fake_machine.hpp"
#include "real_calls.hpp"

// What the drivers behind the fake devices do with their ioctls: the checks, and their errno, are
// those of drivers/dma-buf, drivers/gpu/drm and drivers/vfio/pci.
namespace rdmabuf::testing {
namespace {

int fail(int error) {
    errno = error;
    return -1;
}

std::uint64_t page() {
    return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// Memory of @p size bytes; the caller closes it.
int new_backing(std::uint64_t size) {
    const int backing = __real_memfd_create("fake dma-buf", MFD_CLOEXEC);
    if (backing >= 0 && __real_ftruncate(backing, static_cast<off_t>(size)) != 0) {
        const int error = errno;
        __real_close(backing);
        return fail(error);
    }
    return backing;
}

} // namespace

int FakeKernel::new_dmabuf(int backing, bool close_on_exec) {
    const int fd = __real_fcntl(backing, close_on_exec ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
    if (fd >= 0) {
        files_[fd] = std::make_shared<OpenFile>();
    }
    return fd;
}

int FakeKernel::udmabuf_create(void* argument) {
    if (fails("ioctl(UDMABUF_CREATE)")) {
        return -1;
    }
    const auto& request = *static_cast<const ::udmabuf_create*>(argument);
    if (request.offset % page() != 0 || request.size % page() != 0 || request.size == 0 ||
        request.size > udmabuf_limit_) {
        return fail(EINVAL);
    }
    const int seals = __real_fcntl(static_cast<int>(request.memfd), F_GET_SEALS, 0);
    if (seals < 0) {
        return fail(EBADFD);
    }
    if ((seals & F_SEAL_SHRINK) == 0 || (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0) {
        return fail(EINVAL);
    }
    return new_dmabuf(static_cast<int>(request.memfd),
                      (request.flags & UDMABUF_FLAGS_CLOEXEC) != 0);
}

int FakeKernel::heap_alloc(void* argument) {
    if (fails("ioctl(DMA_HEAP_IOCTL_ALLOC)")) {
        return -1;
    }
    auto& request = *static_cast<dma_heap_allocation_data*>(argument);
    constexpr unsigned allowed = O_CLOEXEC | O_ACCMODE;
    if (request.fd != 0 || (request.fd_flags & ~allowed) != 0 || request.heap_flags != 0 ||
        request.len == 0) {
        return fail(EINVAL);
    }
    const int backing = new_backing((request.len + page() - 1) / page() * page());
    if (backing < 0) {
        return -1;
    }
    const int fd = new_dmabuf(backing, (request.fd_flags & O_CLOEXEC) != 0);
    __real_close(backing);
    if (fd >= 0) {
        request.fd = static_cast<__u32>(fd);
    }
    return fd < 0 ? -1 : 0;
}

int FakeKernel::dmabuf_sync(void* argument) {
    const auto flags = static_cast<const dma_buf_sync*>(argument)->flags;
    syncs_.push_back(flags);
    if (fails("ioctl(DMA_BUF_IOCTL_SYNC)")) {
        return -1;
    }
    if ((flags & ~std::uint64_t{DMA_BUF_SYNC_VALID_FLAGS_MASK}) != 0 ||
        (flags & DMA_BUF_SYNC_RW) == 0) {
        return fail(EINVAL);
    }
    if (sync_failures_.empty()) {
        return 0;
    }
    const int error = sync_failures_.front();
    sync_failures_.pop_front();
    return error == 0 ? 0 : fail(error);
}

int FakeKernel::drm_ioctl(OpenFile& file, unsigned long request, void* argument) {
    const Card& card = file.device->card;
    const bool render = file.device->render;
    switch (request) {
        case DRM_IOCTL_VERSION: {
            if (fails("ioctl(DRM_IOCTL_VERSION)")) {
                return -1;
            }
            auto& version = *static_cast<drm_version*>(argument);
            std::memcpy(version.name, card.driver.data(),
                        std::min<std::size_t>(card.driver.size(), version.name_len));
            version.name_len = card.driver.size();
            return 0;
        }
        case DRM_IOCTL_DROP_MASTER: {
            if (fails("ioctl(DRM_IOCTL_DROP_MASTER)")) {
                return -1;
            }
            file.master = false;
            return 0;
        }
        case DRM_IOCTL_GET_CAP: {
            if (fails("ioctl(DRM_IOCTL_GET_CAP)")) {
                return -1;
            }
            auto& cap = *static_cast<drm_get_cap*>(argument);
            // DRM_CAP_DUMB_BUFFER too: only drivers with displays answer it, and vgem has none.
            if (cap.capability != DRM_CAP_PRIME) {
                return fail(EOPNOTSUPP);
            }
            cap.value = DRM_PRIME_CAP_IMPORT | (card.prime_export ? DRM_PRIME_CAP_EXPORT : 0);
            return 0;
        }
        case DRM_IOCTL_MODE_CREATE_DUMB: {
            if (fails("ioctl(DRM_IOCTL_MODE_CREATE_DUMB)")) {
                return -1;
            }
            auto& dumb = *static_cast<drm_mode_create_dumb*>(argument);
            if (render) {
                return fail(EACCES);
            }
            if (!card.dumb_buffers) {
                return fail(ENOSYS);
            }
            const std::uint64_t pitch = std::uint64_t{dumb.width} * ((dumb.bpp + 7) / 8);
            const std::uint64_t size = pitch * dumb.height;
            if (size == 0 || size > std::numeric_limits<std::uint32_t>::max() - page() + 1) {
                return fail(EINVAL);
            }
            dumb.pitch = static_cast<__u32>(pitch);
            dumb.size = (size + page() - 1) / page() * page() - card.shortfall;
            const int backing = new_backing(dumb.size);
            if (backing < 0) {
                return -1;
            }
            dumb.handle = ++file.last_handle;
            file.dumb_buffers[dumb.handle] = {.backing = backing, .size = dumb.size};
            return 0;
        }
        case DRM_IOCTL_MODE_DESTROY_DUMB: {
            if (fails("ioctl(DRM_IOCTL_MODE_DESTROY_DUMB)")) {
                return -1;
            }
            const auto handle = static_cast<const drm_mode_destroy_dumb*>(argument)->handle;
            const auto buffer = file.dumb_buffers.find(handle);
            if (buffer == file.dumb_buffers.end()) {
                return fail(EINVAL);
            }
            __real_close(buffer->second.backing);
            file.dumb_buffers.erase(buffer);
            return 0;
        }
        case DRM_IOCTL_MODE_MAP_DUMB: {
            if (fails("ioctl(DRM_IOCTL_MODE_MAP_DUMB)")) {
                return -1;
            }
            auto& map = *static_cast<drm_mode_map_dumb*>(argument);
            map.offset = std::uint64_t{map.handle} << 32;
            return file.dumb_buffers.contains(map.handle) ? 0 : fail(ENOENT);
        }
        case DRM_IOCTL_PRIME_HANDLE_TO_FD: {
            if (fails("ioctl(DRM_IOCTL_PRIME_HANDLE_TO_FD)")) {
                return -1;
            }
            auto& prime = *static_cast<drm_prime_handle*>(argument);
            const auto buffer = file.dumb_buffers.find(prime.handle);
            if (buffer == file.dumb_buffers.end()) {
                return fail(ENOENT);
            }
            // Without DRM_RDWR the kernel's descriptor can only be read.
            if ((prime.flags & ~unsigned{DRM_CLOEXEC | DRM_RDWR}) != 0 ||
                (prime.flags & DRM_RDWR) == 0) {
                return fail(EINVAL);
            }
            prime.fd = new_dmabuf(buffer->second.backing, (prime.flags & DRM_CLOEXEC) != 0);
            return prime.fd < 0 ? -1 : 0;
        }
        default:
            return fail(ENOTTY);
    }
}

int FakeKernel::vfio_ioctl(const Device& device, unsigned long request, void* argument) {
    const Vfio& vfio = device.vfio;
    switch (request) {
        case VFIO_DEVICE_GET_REGION_INFO: {
            if (fails("ioctl(VFIO_DEVICE_GET_REGION_INFO)")) {
                return -1;
            }
            auto& info = *static_cast<vfio_region_info*>(argument);
            if (info.argsz < sizeof(info) || info.index >= VFIO_PCI_NUM_REGIONS) {
                return fail(EINVAL);
            }
            info.size = info.index < vfio.bars.size() ? vfio.bars[info.index] : 0;
            info.offset = std::uint64_t{info.index} << 40;
            return 0;
        }
        case VFIO_DEVICE_FEATURE:
            return fails("ioctl(VFIO_DEVICE_FEATURE)") ? -1 : vfio_dmabuf(device, argument);
        default:
            return fail(ENOTTY);
    }
}

int FakeKernel::vfio_dmabuf(const Device& device, void* argument) {
    // As the kernel lays it out: the feature, and behind it its argument.
    struct Request {
        __u32 argsz, feature, region, open_flags, flags, ranges;
        __u64 offset, length;
    };
    constexpr __u32 dma_buf = 11;
    const auto& asked = *static_cast<const Request*>(argument);
    const std::vector<std::uint64_t>& bars = device.vfio.bars;
    if ((asked.feature & VFIO_DEVICE_FEATURE_MASK) != dma_buf) {
        return fail(ENOTTY);
    }
    if (device.vfio.refusal != 0) {
        return fail(device.vfio.refusal);
    }
    if ((asked.feature & VFIO_DEVICE_FEATURE_SET) != 0) {
        return fail(EINVAL);
    }
    if ((asked.feature & VFIO_DEVICE_FEATURE_PROBE) != 0) {
        return 0;
    }
    if (asked.argsz < sizeof(asked) || asked.ranges != 1 || asked.flags != 0) {
        return fail(EINVAL);
    }
    if (asked.region >= VFIO_PCI_ROM_REGION_INDEX) {
        return fail(ENODEV);
    }
    const std::uint64_t size = asked.region < bars.size() ? bars[asked.region] : 0;
    if (asked.length == 0 || asked.length % page() != 0 || asked.offset % page() != 0 ||
        asked.offset > size || asked.length > size - asked.offset) {
        return fail(EINVAL);
    }
    const int backing = new_backing(asked.length);
    if (backing < 0) {
        return -1;
    }
    const VfioPages pages{.region = asked.region, .offset = asked.offset};
    if (::pwrite(backing, &pages, sizeof(pages), 0) != ssize_t{sizeof(pages)}) {
        __real_close(backing);
        return -1;
    }
    const int fd = new_dmabuf(backing, (asked.open_flags & O_CLOEXEC) != 0);
    __real_close(backing);
    return fd;
}

} // namespace rdmabuf::testing

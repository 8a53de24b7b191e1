// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/detail/ioctl.hpp>
#include <rdmabuf/providers/udmabuf.hpp>

#include "common/device_node.hpp"
#include "common/dmabuf_allocator.hpp"

namespace rdmabuf {
namespace {

constexpr const char* device_path = "/dev/udmabuf";
constexpr const char* limit_path = "/sys/module/udmabuf/parameters/size_limit_mb";
constexpr std::uint64_t bytes_per_mebibyte = std::uint64_t{1} << 20;

/// MFD_NOEXEC_SEAL of linux/memfd.h, Linux 6.3: younger than the headers this is built with may be.
constexpr unsigned mfd_noexec_seal = 0x8;

detail::OrRefusal<UniqueFd> open_udmabuf() {
    return detail::open_device(
        device_path,
        {.missing =
             "load the udmabuf module (modprobe udmabuf), or use a kernel with CONFIG_UDMABUF; "
             "a container needs the device passed in",
         .forbidden = "add the user to the group of the device, or run as root"});
}

/// What the module allows a buffer to have, in MiB. None when that cannot be read.
std::optional<std::uint32_t> size_limit() {
    const auto text = detail::read_line(limit_path);
    if (!text) {
        return std::nullopt;
    }
    std::uint32_t mebibytes = 0;
    const char* const end = text->data() + text->size();
    const auto [stopped, error] = std::from_chars(text->data(), end, mebibytes);
    return error == std::errc() && stopped == end ? std::optional(mebibytes) : std::nullopt;
}

std::string refused(std::size_t size, std::optional<std::uint32_t> limit) {
    const std::string asked = std::to_string(size) + " bytes were asked for; ";
    if (!limit) {
        return asked +
               "a likely reason is the udmabuf module's size limit, which cannot be read from " +
               limit_path + "; raise it with the module parameter udmabuf.size_limit_mb=";
    }
    return asked + "the udmabuf module's limit is " + std::to_string(*limit * bytes_per_mebibyte) +
           " (" + std::to_string(*limit) +
           " MiB); raise it with the module parameter udmabuf.size_limit_mb=";
}

/// A file in memory, as udmabuf wants it: it can grow, but not shrink under the importers' feet.
UniqueFd make_memfd(std::size_t size) {
    constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    // A system may demand that memfds say they are not executable (sysctl vm.memfd_noexec); kernels
    // before 6.3 do not know how to.
    UniqueFd memfd(::memfd_create("rdmabuf", flags | mfd_noexec_seal));
    if (!memfd && errno == EINVAL) {
        memfd.reset(::memfd_create("rdmabuf", flags));
    }
    detail::check_zero(memfd ? 0 : errno, "memfd_create");
    const int truncated = ::ftruncate(memfd.get(), static_cast<off_t>(size));
    detail::check_zero(truncated == 0 ? 0 : errno, "ftruncate");
    const int sealed = ::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK);
    detail::check_zero(sealed == 0 ? 0 : errno, "fcntl(F_ADD_SEALS)");
    return memfd;
}

class UdmabufExporter final : public detail::DmaBufAllocator {
  public:
    UdmabufExporter() : DmaBufAllocator("udmabuf") {}

    [[nodiscard]] Availability availability() const override {
        const auto device = open_udmabuf();
        if (const auto* refusal = std::get_if<detail::Refusal>(&device)) {
            return refusal->why;
        }
        const auto limit = size_limit();
        return Availability::yes(std::string(device_path) +
                                 (limit ? ", up to " + std::to_string(*limit) + " MiB a buffer"
                                        : "; its size limit cannot be read"));
    }

  protected:
    [[nodiscard]] NewBuffer make(std::size_t size) const override {
        const UniqueFd device = detail::value_or_raise(open_udmabuf());
        const auto limit = size_limit();
        if (limit && size > *limit * bytes_per_mebibyte) {
            throw Error(EINVAL, create_call, refused(size, limit));
        }
        const UniqueFd memfd = make_memfd(size);
        udmabuf_create request{};
        request.memfd = static_cast<__u32>(memfd.get());
        request.flags = UDMABUF_FLAGS_CLOEXEC;
        request.size = size;
        UniqueFd dmabuf(detail::ioctl_retrying(device.get(), UDMABUF_CREATE, &request));
        if (!dmabuf) {
            const int error = errno;
            throw Error(error, create_call,
                        error == EINVAL ? refused(size, limit)
                                        : std::to_string(size) + " bytes were asked for");
        }
        // The dma-buf keeps the pages: the memfd may go.
        detail::Mapping mapping(dmabuf.get(), size);
        return {.dmabuf = std::move(dmabuf), .mapping = std::move(mapping)};
    }

  private:
    static constexpr const char* create_call = "ioctl(UDMABUF_CREATE)";
};

} // namespace

std::shared_ptr<Allocator> make_udmabuf_exporter() {
    return std::make_shared<UdmabufExporter>();
}

} // namespace rdmabuf

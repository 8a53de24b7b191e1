// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <linux/udmabuf.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/udmabuf.hpp>

#include "base/file_descriptor.hpp"
#include "common/device_node.hpp"
#include "common/dmabuf_allocator.hpp"
#include "common/mapping.hpp"

namespace rdmabuf {
namespace {

constexpr const char* device_path = "/dev/udmabuf";
constexpr const char* limit_path = "/sys/module/udmabuf/parameters/size_limit_mb";
constexpr std::uint64_t bytes_per_mebibyte = std::uint64_t{1} << 20;

Result<UniqueFd> open_udmabuf() {
    return detail::open_device(
        device_path,
        {.missing =
             "load the udmabuf module (modprobe udmabuf), or use a kernel with CONFIG_UDMABUF; "
             "a container needs the device passed in",
         .forbidden = "add the user to the group of the device, or run as root"});
}

/// Returns the maximum size of a buffer in MiB (module parameter size_limit_mb). Returns
/// std::nullopt if the parameter cannot be read, or is not a number.
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
    const std::string asked = std::to_string(size) + " bytes were requested; ";
    if (!limit) {
        return asked +
               "a likely reason is the udmabuf module's size limit, which cannot be read from " +
               limit_path + "; raise it with the module parameter udmabuf.size_limit_mb=";
    }
    return asked + "the udmabuf module's limit is " + std::to_string(*limit * bytes_per_mebibyte) +
           " (" + std::to_string(*limit) +
           " MiB); raise it with the module parameter udmabuf.size_limit_mb=";
}

class UdmabufExporter final : public detail::DmaBufAllocator {
  public:
    UdmabufExporter() : DmaBufAllocator("udmabuf") {}

    [[nodiscard]] Availability availability() const override {
        const auto device = open_udmabuf();
        if (!device) {
            return device.error_info().availability();
        }
        const auto limit = size_limit();
        return Availability::yes(std::string(device_path) +
                                 (limit ? ", up to " + std::to_string(*limit) + " MiB per buffer"
                                        : "; its size limit cannot be read"));
    }

  protected:
    [[nodiscard]] NewBuffer make(std::size_t size) const override {
        const UniqueFd device = open_udmabuf().value();
        const auto limit = size_limit();
        if (limit && size > *limit * bytes_per_mebibyte) {
            throw Error(EINVAL, create_call, refused(size, limit));
        }
        // udmabuf requires F_SEAL_SHRINK, so that the pages exist while importers use them. udmabuf
        // refuses F_SEAL_WRITE, so that the pages stay writable.
        const UniqueFd memfd = detail::make_memfd(size, F_SEAL_SHRINK);
        udmabuf_create request{};
        request.memfd = static_cast<__u32>(memfd.get());
        request.flags = UDMABUF_FLAGS_CLOEXEC;
        request.size = size;
        UniqueFd dmabuf(detail::ioctl_retrying(device.get(), UDMABUF_CREATE, &request));
        if (!dmabuf) {
            const int error = errno;
            throw Error(error, create_call,
                        error == EINVAL ? refused(size, limit)
                                        : std::to_string(size) + " bytes were requested");
        }
        // The dma-buf holds references to the pages, so the memfd can be closed.
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

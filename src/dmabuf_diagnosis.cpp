// SPDX-License-Identifier: BSD-3-Clause
#include "dmabuf_diagnosis.hpp"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <rdmabuf/context.hpp>

namespace rdmabuf::detail {
namespace {

/// "drm", "nv_dmabuf": the exp_name line that the kernel shows for dma-bufs and for nothing else
/// (Documentation/filesystems/proc.rst, "DMA Buffer files"). Empty for other files.
std::string exporter_name(int fd) {
    std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd));
    constexpr std::string_view key = "exp_name:";
    for (std::string line; std::getline(info, line);) {
        if (line.starts_with(key)) {
            const std::size_t value = line.find_first_not_of(" \t", key.size());
            return value == std::string::npos ? "?" : line.substr(value);
        }
    }
    return {};
}

std::string what_it_is(int fd) {
    std::error_code none;
    const auto target = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), none);
    return none ? "another file" : target.string();
}

/// For the many causes of EINVAL.
std::string diagnose_invalid(const DmaBufRange& range, const std::string& exporter) {
    if (exporter.empty()) {
        return "descriptor " + std::to_string(range.fd) + " is not a dma-buf: it is " +
               what_it_is(range.fd);
    }
    const off_t size = ::lseek(range.fd, 0, SEEK_END);
    if (size >= 0 && range.offset + range.length > static_cast<std::uint64_t>(size)) {
        return "the range ends at byte " + std::to_string(range.offset + range.length) +
               " and the dma-buf has " + std::to_string(size);
    }
    return "the driver refused this range or these access flags; the dma-buf is from " + exporter;
}

} // namespace

std::string diagnose_dmabuf(const ProtectionDomain& pd, const DmaBufRange& range, int error) {
    constexpr int kernel_enotsupp = 524;
    const std::string device = pd.context().device_name();
    const std::string exporter = exporter_name(range.fd);
    switch (error) {
        case EBADF:
            return "descriptor " + std::to_string(range.fd) + " is not open";
        case EINVAL:
            return diagnose_invalid(range, exporter);
        case EPROTONOSUPPORT:
            return "this kernel's uverbs cannot register dma-bufs; use Linux 5.12 or newer";
        case EOPNOTSUPP: {
            const Availability import = pd.context().dmabuf_import();
            return import.available
                       ? device + " can import dma-bufs, but not from " + exporter +
                             ": the exporter does not share with this importer, or there is no "
                             "peer-to-peer path between the two devices"
                       : import.reason + "; " + import.remedy;
        }
        case kernel_enotsupp:
            return exporter + " refuses " + device +
                   ": the PCI topology does not allow peer-to-peer between the two, or the "
                   "importer "
                   "does not take peer memory";
        case ENODEV:
            return "the buffer was revoked, or its device is gone";
        default:
            return exporter.empty() ? std::string() : "the dma-buf is from " + exporter;
    }
}

} // namespace rdmabuf::detail

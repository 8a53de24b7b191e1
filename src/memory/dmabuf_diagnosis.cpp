// SPDX-License-Identifier: BSD-3-Clause
#include "memory/dmabuf_diagnosis.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace rdmabuf::detail {
namespace {

/// Returns the text after @p key and the separator in a @p line of the form "key:\tvalue". Returns
/// an empty text if @p line does not begin with @p key.
std::string_view value_of(std::string_view key, std::string_view line) {
    if (!line.starts_with(key)) {
        return {};
    }
    const std::size_t value = line.find_first_not_of(": \t", key.size());
    return value == std::string_view::npos ? std::string_view() : line.substr(value);
}

/// Returns true if the size of the file is known, and @p range ends after the end of the file. The
/// end of the range must not overflow 64 bits.
bool ends_outside(const DmaBufRange& range, const DescriptorFacts& descriptor) {
    return descriptor.size >= 0 &&
           range.offset + range.length > static_cast<std::uint64_t>(descriptor.size);
}

/// Returns the most probable reason why the registration of a dma-buf failed with EINVAL.
std::string diagnose_invalid(const DmaBufRange& range, const DescriptorFacts& descriptor) {
    const bool is_dmabuf = !descriptor.exporter.empty();
    // Softverbs registers memfds like dma-bufs. If a range is too long for its memfd, the text must
    // name the size as the cause, and not the type of the file.
    if ((is_dmabuf || descriptor.is_memfd()) && ends_outside(range, descriptor)) {
        const std::string end =
            "the range ends at byte " + std::to_string(range.offset + range.length);
        const std::string size = std::to_string(descriptor.size) + " bytes";
        return is_dmabuf ? end + " and the dma-buf has " + size
                         : end + " and " + descriptor.file + " has " + size +
                               " (only softverbs registers a memfd)";
    }
    if (!is_dmabuf) {
        return "descriptor " + std::to_string(range.fd) + " is not a dma-buf: it is " +
               descriptor.file;
    }
    return "the driver refused this range or these access flags; the dma-buf is from " +
           descriptor.exporter;
}

std::string diagnose_unsupported(const Context& context, const std::string& exporter,
                                 Access access) {
    const Availability import = context.dmabuf_import();
    if (import.available) {
        std::string text =
            context.device_name() + " can import dma-bufs, but not from " + exporter + " with " +
            to_string(access) +
            ": the device refuses one of these access flags, the exporter does not share with this "
            "importer, or there is no peer-to-peer path between the two devices";
        if (has(access, Access::remote_atomic)) {
            text.append("; ").append(
                "try without remote_atomic, which efa, for example, refuses for dma-bufs");
        }
        return text;
    }
    return import.remedy.empty() ? import.reason : import.reason + "; " + import.remedy;
}

} // namespace

DescriptorFacts inspect_descriptor(int fd) {
    DescriptorFacts facts;
    std::error_code unknown;
    const auto link = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), unknown);
    facts.known = !unknown;
    facts.file = unknown ? "another file" : link.string();
    // The size is not read with lseek(2). If the descriptor is not a dma-buf, lseek(2) would change
    // its file position.
    std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd));
    for (std::string line; std::getline(info, line);) {
        if (const std::string_view exporter = value_of("exp_name", line); !exporter.empty()) {
            facts.exporter = exporter;
        } else if (const std::string_view size = value_of("size", line); !size.empty()) {
            std::from_chars(size.data(), size.data() + size.size(), facts.size);
        }
    }
    struct ::stat status {};
    if (facts.size < 0 && ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        facts.size = status.st_size;
    }
    facts.flags = ::fcntl(fd, F_GETFL);
    return facts;
}

bool is_invalid(const DmaBufRange& range, const DescriptorFacts& descriptor) {
    const bool registrable =
        !descriptor.exporter.empty() || descriptor.is_memfd() || !descriptor.known;
    return !registrable || ends_outside(range, descriptor);
}

std::string diagnose_dmabuf(const Context& context, const DmaBufRange& range,
                            const DescriptorFacts& descriptor, Access access, int error) {
    const std::string exporter =
        descriptor.exporter.empty() ? descriptor.file : descriptor.exporter;
    switch (error) {
        case EBADF:
            return "descriptor " + std::to_string(range.fd) +
                   (descriptor.has_flags(O_PATH, O_PATH)
                        ? " was opened with O_PATH: open or export it with O_RDWR"
                        : " is not open");
        case EACCES:
            if (descriptor.has_flags(O_ACCMODE, O_RDONLY)) {
                return "descriptor " + std::to_string(range.fd) +
                       " is open for reading only: open or export it with O_RDWR to register it "
                       "with local_write";
            }
            if (descriptor.has_flags(O_ACCMODE, O_WRONLY)) {
                return "descriptor " + std::to_string(range.fd) +
                       " is open for writing only: open or export it with O_RDWR";
            }
            break;
        case EINVAL:
            return diagnose_invalid(range, descriptor);
        case EPROTONOSUPPORT:
            return "this kernel's uverbs cannot register dma-bufs; use Linux 5.12 or newer";
        case EOPNOTSUPP:
            return diagnose_unsupported(context, exporter, access);
        case kernel_enotsupp:
            return exporter + " refuses " + context.device_name() +
                   ": the PCI topology does not allow peer-to-peer access between the two devices, "
                   "or the importer does not support peer memory";
        case ENODEV:
            return "the buffer was revoked, or its device was removed";
        case ENOMEM:
            return context.device_name() +
                   " or the IOMMU has no more translations, or the BAR of the GPU is used up";
        case EPERM:
            return exporter + " permits no further attachment, or no peer-to-peer DMA";
        default:
            break;
    }
    return descriptor.exporter.empty() ? std::string()
                                       : "the dma-buf is from " + descriptor.exporter;
}

} // namespace rdmabuf::detail

// SPDX-License-Identifier: BSD-3-Clause
#include "kernel_files.hpp"

#include <sys/klog.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>

#include <rdmabuf/error.hpp>

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

/// The paths of configuration files, in which {} is the release of the kernel.
constexpr std::array config_files{
    "/boot/config-{}",
    "/lib/modules/{}/config",
    "/usr/lib/modules/{}/config",
    "/usr/lib/ostree-boot/config-{}",
    "/usr/lib/kernel/config-{}",
    "/usr/src/linux-headers-{}/.config",
    "/lib/modules/{}/build/.config",
};

} // namespace

std::optional<std::string> decompress(std::string_view compressed) {
    constexpr std::size_t longest = std::size_t{4} << 20U;
    constexpr int gzip_only = 16 + MAX_WBITS; // as zlib.h defines the parameter windowBits
    z_stream stream{};
    if (::inflateInit2(&stream, gzip_only) != Z_OK) {
        return std::nullopt;
    }
    // zlib does not change the input.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
    stream.avail_in = static_cast<uInt>(compressed.size());
    std::string text;
    std::array<char, 16384> part{};
    int result = Z_OK;
    while (result == Z_OK && text.size() < longest) {
        stream.next_out = reinterpret_cast<Bytef*>(part.data());
        stream.avail_out = static_cast<uInt>(part.size());
        result = ::inflate(&stream, Z_NO_FLUSH);
        text.append(part.data(), part.size() - stream.avail_out);
    }
    ::inflateEnd(&stream);
    return result == Z_STREAM_END ? std::optional(std::move(text)) : std::nullopt;
}

KernelOption read_kernel_option(const Machine& machine, const std::string& name) {
    const auto state_in = [&name](std::string_view text) {
        const auto value = value_of(text, name + "=");
        return value && (*value == "y" || *value == "m") ? KernelOption::State::on
                                                         : KernelOption::State::off;
    };
    // The kernel has this file only if it was built with CONFIG_IKCONFIG_PROC.
    const std::string kernel_file = "/proc/config.gz";
    if (const FileText file = machine.read(kernel_file); file.text) {
        if (const auto text = decompress(*file.text)) {
            return {.state = state_in(*text), .where = kernel_file};
        }
    }
    const std::string release = machine.kernel_release();
    for (const char* const pattern : config_files) {
        const std::string path = fmt::format(fmt::runtime(pattern), release);
        const FileText file = machine.read(path);
        if (!file.text) {
            continue;
        }
        return {.state = state_in(*file.text), .where = path};
    }
    if (machine.exists(kernel_file)) {
        return {.where = fmt::format("{} cannot be read or decompressed", kernel_file)};
    }
    return {.where = fmt::format("there is no configuration file of kernel {}", release)};
}

KernelLog read_kernel_log(const Machine& machine) {
    if (machine.recorded()) {
        FileText file = machine.read(recorded_kernel_log);
        return {.text = std::move(file.text), .reason = "the kernel log was not recorded"};
    }
    constexpr int read_all = 3;     // SYSLOG_ACTION_READ_ALL
    constexpr int size_buffer = 10; // SYSLOG_ACTION_SIZE_BUFFER
    const int size = ::klogctl(size_buffer, nullptr, 0);
    if (size < 0) {
        return {.text = std::nullopt,
                .reason = "the kernel log cannot be read: " + describe_errno(errno)};
    }
    std::string text(static_cast<std::size_t>(size), '\0');
    const int length = ::klogctl(read_all, text.data(), size);
    if (length < 0) {
        return {.text = std::nullopt,
                .reason = "the kernel log cannot be read: " + describe_errno(errno)};
    }
    text.resize(static_cast<std::size_t>(length));
    return {.text = std::move(text), .reason = {}};
}

std::string examined_lines(std::string_view log) {
    std::string kept;
    for (const std::string_view line : lines(log)) {
        for (const std::string_view text :
             {log_no_whitelist, log_acs_redirect, log_no_peer_to_peer, log_refused_key}) {
            if (line.find(text) != std::string_view::npos) {
                kept.append(line).push_back('\n');
                break;
            }
        }
    }
    return kept;
}

std::optional<std::uint64_t> read_page_size(const Machine& machine) {
    const FileText file = machine.read("/proc/self/smaps");
    const auto value = file.text ? value_of(*file.text, "KernelPageSize:") : std::nullopt;
    if (!value) {
        return std::nullopt;
    }
    std::uint64_t kibibytes = 0;
    const auto [end, error] =
        std::from_chars(value->data(), value->data() + value->size(), kibibytes);
    if (error != std::errc() || end == value->data()) {
        return std::nullopt;
    }
    return kibibytes * 1024;
}

NvidiaModules read_nvidia_modules(const Machine& machine) {
    const std::string version = machine.line("/proc/driver/nvidia/version");
    if (version.empty()) {
        return NvidiaModules::none;
    }
    return version.find("Open Kernel Module") != std::string::npos ? NvidiaModules::open
                                                                   : NvidiaModules::proprietary;
}

std::string peer_memory_module(const Machine& machine) {
    for (const char* const module : {"nvidia_peermem", "nv_peer_mem", "efa_nv_peermem"}) {
        if (machine.exists(std::string("/sys/module/") + module)) {
            return module;
        }
    }
    return {};
}

} // namespace rdmabuf::tools::doctor

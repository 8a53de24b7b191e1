// SPDX-License-Identifier: BSD-3-Clause
#include "kernel_files.hpp"

#include <sys/klog.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>

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

KernelOption read_kernel_option(const Machine& machine, const std::string& name) {
    const std::string release = machine.kernel_release();
    for (const char* const pattern : config_files) {
        const std::string path = fmt::format(fmt::runtime(pattern), release);
        const FileText file = machine.read(path);
        if (!file.text) {
            continue;
        }
        const auto value = value_of(*file.text, name + "=");
        const bool on = value && (*value == "y" || *value == "m");
        return {.state = on ? KernelOption::State::on : KernelOption::State::off, .where = path};
    }
    if (machine.exists("/proc/config.gz")) {
        return {.where =
                    fmt::format("only /proc/config.gz has it: zgrep {} /proc/config.gz", name)};
    }
    return {.where = fmt::format("there is no configuration file of kernel {}", release)};
}

KernelLog read_kernel_log(const Machine& machine) {
    if (machine.recorded()) {
        FileText file = machine.read("/var/log/dmesg");
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

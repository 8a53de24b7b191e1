// SPDX-License-Identifier: BSD-3-Clause
#include "devices.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>

#include <rdmabuf/context.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::tools::doctor {

namespace {

/// Redirects stderr of the process to a file in memory, until the object is destroyed. libibverbs
/// reports problems of providers only by lines on stderr.
class CapturedStderr {
  public:
    CapturedStderr()
        : text_(::memfd_create("stderr", MFD_CLOEXEC)),
          saved_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)) {
        if (text_ && saved_) {
            std::fflush(stderr);
            redirected_ = ::dup2(text_.get(), STDERR_FILENO) >= 0;
        }
    }
    ~CapturedStderr() { restore(); }
    CapturedStderr(const CapturedStderr&) = delete;
    CapturedStderr& operator=(const CapturedStderr&) = delete;

    /// Ends the redirection and returns what was written.
    std::string take() {
        restore();
        std::string text;
        std::array<char, 1024> part{};
        off_t at = 0;
        ssize_t length = 0;
        while (text_ && (length = ::pread(text_.get(), part.data(), part.size(), at)) > 0) {
            text.append(part.data(), static_cast<std::size_t>(length));
            at += length;
        }
        return text;
    }

  private:
    void restore() noexcept {
        if (redirected_) {
            std::fflush(stderr);
            ::dup2(saved_.get(), STDERR_FILENO);
            redirected_ = false;
        }
    }

    UniqueFd text_;
    UniqueFd saved_;
    bool redirected_ = false;
};

} // namespace

Devices::Devices(Machine& machine, std::string_view only) {
    if (machine.recorded()) {
        return;
    }
    CapturedStderr captured;
    std::string error;
    try {
        open(only);
    } catch (const std::exception& failure) {
        error = failure.what();
    }
    warnings_ = captured.take();
    if (!error.empty()) {
        warnings_ += error + "\n";
    }
    for (const OpenedDevice& device : devices_) {
        if (device.context) {
            // Ignore the result: most NICs have no data-direct function.
            static_cast<void>(machine.topology().query_data_direct(*device.context));
        }
    }
}

void Devices::open(std::string_view only) {
    for (const Device& device : DeviceList()) {
        OpenedDevice opened{.name = device.name()};
        if (!only.empty() && opened.name != only) {
            continue;
        }
        try {
            opened.context.emplace(device);
        } catch (const Error& failure) {
            opened.error = failure.error();
            opened.message = failure.what();
        }
        devices_.push_back(std::move(opened));
    }
}

const OpenedDevice* Devices::listed(std::string_view name) const noexcept {
    const auto found = std::ranges::find(devices_, name, &OpenedDevice::name);
    return found != devices_.end() ? &*found : nullptr;
}

const Context* Devices::find(std::string_view name) const noexcept {
    const OpenedDevice* const device = listed(name);
    return device != nullptr && device->context ? &*device->context : nullptr;
}

} // namespace rdmabuf::tools::doctor

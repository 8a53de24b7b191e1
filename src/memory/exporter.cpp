// SPDX-License-Identifier: BSD-3-Clause
#include <cxxabi.h>
#include <linux/dma-buf.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/exporter.hpp>

#include "base/address_space.hpp"
#include "base/file_descriptor.hpp"
#include "base/text.hpp"
#include "memory/checks.hpp"
#include "memory/exporter_calls.hpp"

namespace rdmabuf {

ExportedRange::Held::~Held() {
    // In a child process after fork(2), `release` is not called, because drivers work only in the
    // process that opened them. The destructor of `fd` then closes the descriptor.
    if (release && fd && creator.is_current()) {
        release(fd.release());
    }
}

std::unique_ptr<ExportedRange::Held> ExportedRange::hold(UniqueFd fd, Release release) {
    // If make_unique() throws, the catch block passes the descriptor to its release function.
    // Without the catch block, UniqueFd would only close the descriptor.
    std::unique_ptr<Held> held;
    try {
        held = std::make_unique<Held>();
    } catch (...) {
        if (release && fd) {
            release(fd.release());
        }
        throw;
    }
    held->fd = std::move(fd);
    held->release = std::move(release);
    return held;
}

ExportedRange::ExportedRange(std::string exporter, UniqueFd fd, std::uint64_t offset,
                             std::size_t length, std::uintptr_t address, MappingKind mapping)
    : held_(hold(std::move(fd), nullptr)),
      offset_(offset),
      length_(length),
      address_(address),
      mapping_(mapping),
      exporter_(std::move(exporter)) {}

ExportedRange::ExportedRange(std::string exporter, int fd, Release release, std::uint64_t offset,
                             std::size_t length, std::uintptr_t address, MappingKind mapping)
    : held_(hold(UniqueFd(fd), std::move(release))),
      offset_(offset),
      length_(length),
      address_(address),
      mapping_(mapping),
      exporter_(std::move(exporter)) {}

namespace {

static_assert(static_cast<unsigned>(CpuAccessMode::read) == DMA_BUF_SYNC_READ);
static_assert(static_cast<unsigned>(CpuAccessMode::write) == DMA_BUF_SYNC_WRITE);
static_assert(static_cast<unsigned>(CpuAccessMode::read_write) == DMA_BUF_SYNC_RW);

constexpr const char* sync_call = "ioctl(DMA_BUF_IOCTL_SYNC)";

/// Calls the ioctl DMA_BUF_IOCTL_SYNC. Returns 0 or the errno value.
int sync(int dmabuf, unsigned flags) noexcept {
    dma_buf_sync argument{};
    argument.flags = flags;
    return detail::ioctl_retrying(dmabuf, DMA_BUF_IOCTL_SYNC, &argument) < 0 ? errno : 0;
}

} // namespace

CpuAccess::CpuAccess(int dmabuf, std::span<std::byte> mapping, CpuAccessMode mode)
    : dmabuf_(dmabuf), mapping_(mapping), mode_(mode) {
    if (mapping.empty()) {
        throw Error(
            ENOTSUP, "mmap",
            "the CPU has no mapping of this memory; reach it through RDMA or the device that "
            "holds it");
    }
    if (dmabuf >= 0) {
        detail::check_zero(sync(dmabuf, DMA_BUF_SYNC_START | static_cast<unsigned>(mode)),
                           sync_call);
    }
}

CpuAccess::~CpuAccess() {
    if (dmabuf_ < 0) {
        return;
    }
    if (const int error = sync(dmabuf_, DMA_BUF_SYNC_END | static_cast<unsigned>(mode_));
        error != 0) {
        detail::report_teardown_failure(sync_call, error);
    }
}

namespace detail {
namespace {

[[noreturn]] void raise(const Exporter& exporter, const char* function, int error,
                        const std::string& thrown) {
    throw Error(error, function,
                "the exporter '" + std::string(exporter.name()) + "' threw " + thrown);
}

} // namespace

void rethrow_from_exporter(const Exporter& exporter, const char* function) {
    try {
        throw;
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const abi::__forced_unwind&) {
        throw; // pthread_cancel(3): the process ends unless this exception is rethrown.
    } catch (const std::system_error& error) {
        // An Error is passed on, unless its errno value is 0, which would mean success.
        if (dynamic_cast<const Error*>(&error) != nullptr && error.code()) {
            throw;
        }
        // In these two error categories, the value of a std::error_code is an errno value. In other
        // categories, it is not.
        const bool is_errno = error.code().category() == std::system_category() ||
                              error.code().category() == std::generic_category();
        raise(exporter, function, is_errno && error.code() ? error.code().value() : EIO,
              std::string("std::system_error: ") + error.what());
    } catch (const std::exception& error) {
        raise(exporter, function, EIO, std::string("a std::exception: ") + error.what());
    } catch (...) {
        raise(exporter, function, EIO, "an object that is not a std::exception");
    }
}

ExportedRange checked(ExportedRange made, const Exporter& exporter, std::uintptr_t address) {
    if (made.address() != 0 && made.address() != address) {
        throw Error(EIO, "Exporter::export_range",
                    "the exporter '" + std::string(exporter.name()) + "' exported the bytes at " +
                        hexadecimal(made.address()) + " instead of those at " +
                        hexadecimal(address) + ": correct the exporter");
    }
    return made;
}

std::optional<Allocation> checked(std::optional<Allocation> found, const Exporter& exporter,
                                  const char* function, std::uintptr_t address,
                                  std::size_t length) {
    if (!found) {
        return found;
    }
    const bool touches = found->base <= address ? address - found->base < found->length
                                                : found->base - address < length;
    if (!touches || found->length > std::numeric_limits<std::uintptr_t>::max() - found->base) {
        throw Error(EIO, function,
                    "the exporter '" + std::string(exporter.name()) +
                        "' returned an allocation of " + std::to_string(found->length) +
                        " bytes at " + hexadecimal(found->base) + " for the address " +
                        hexadecimal(address) + ": correct the exporter");
    }
    return found;
}

} // namespace detail

const char* to_string(MemoryKind kind) noexcept {
    switch (kind) {
        case MemoryKind::system:
            return "system";
        case MemoryKind::device:
            return "device";
        case MemoryKind::managed:
            return "managed";
        case MemoryKind::pinned_host:
            return "pinned_host";
    }
    return "unknown";
}

std::optional<Allocation> Exporter::find_overlapping(std::uintptr_t address,
                                                     std::size_t length) const {
    // A driver can be queried for only one address at a time, so this function queries addresses at
    // equal distances (steps). One query takes a small part of the time to pin 2 MiB. The step is
    // therefore 2 MiB for ranges from 32 MiB (16 steps) to 2 TiB (1 Mi steps). A shorter range has
    // at most 16 steps. A longer range has longer steps, so that their number does not grow
    // further.
    constexpr std::size_t most_steps = 16;
    constexpr auto longest_step = std::size_t{2} << 20U;
    constexpr auto most_long_steps = std::size_t{1} << 20U;
    const std::size_t page = detail::page_size();
    const std::size_t pages = (length / most_steps + page - 1) / page;
    const std::size_t step = std::max(std::clamp(pages * page, page, longest_step),
                                      length / most_long_steps / page * page);
    for (std::size_t offset = 0; offset < length;) {
        if (auto found = find(address + offset)) {
            return found;
        }
        const std::size_t last = length - 1;
        offset = offset < last ? offset + std::min(step, last - offset) : length;
    }
    return std::nullopt;
}

void Buffer::Memory::copy_in(std::size_t offset, std::span<const std::byte> source) {
    const CpuAccess access(sync_fd(), mapping(), CpuAccessMode::write);
    std::ranges::copy(source, access.bytes().subspan(offset).begin());
}

void Buffer::Memory::copy_out(std::size_t offset, std::span<std::byte> destination) const {
    const CpuAccess access(sync_fd(), mapping(), CpuAccessMode::read);
    std::ranges::copy(access.bytes().subspan(offset, destination.size()), destination.begin());
}

void Buffer::copy_in(std::size_t offset, std::span<const std::byte> source) const {
    detail::check_inside(offset, source.size(), size(), "copy_in", "the buffer");
    if (!source.empty()) {
        memory_->copy_in(offset, source);
    }
}

void Buffer::copy_out(std::size_t offset, std::span<std::byte> destination) const {
    detail::check_inside(offset, destination.size(), size(), "copy_out", "the buffer");
    if (!destination.empty()) {
        memory_->copy_out(offset, destination);
    }
}

} // namespace rdmabuf

// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include <rdmabuf/exported_range.hpp>

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

} // namespace rdmabuf

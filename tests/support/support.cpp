// SPDX-License-Identifier: BSD-3-Clause
#include "support.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <system_error>

namespace rdmabuf::testing {
namespace {

std::mutex failures_mutex;
std::vector<TeardownFailures::Failure> failures;

void note_failure(const char* function, int error) noexcept {
    const std::lock_guard lock(failures_mutex);
    failures.emplace_back(function, error);
}

} // namespace

std::set<int> open_descriptors() {
    std::set<int> numbers;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        numbers.insert(std::stoi(entry.path().filename().string()));
    }
    // Remove the descriptor of the directory iterator, which is closed by now.
    std::erase_if(numbers, [](int fd) { return ::fcntl(fd, F_GETFD) < 0; });
    return numbers;
}

bool closed_on_exec(int fd) {
    return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

std::size_t page_size() {
    return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::vector<std::byte> bytes_through(const ExportedRange& exported, bool synced) {
    const DmaBufRange range = exported;
    const std::size_t size = range.offset + range.length;
    void* const start = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, range.fd, 0);
    if (start == MAP_FAILED) {
        throw std::system_error(errno, std::system_category(), "mmap of an exported descriptor");
    }
    std::vector<std::byte> copy(range.length);
    {
        const CpuAccess access(synced ? range.fd : -1, {static_cast<std::byte*>(start), size},
                               CpuAccessMode::read);
        const auto bytes = access.bytes().subspan(range.offset);
        std::copy(bytes.begin(), bytes.end(), copy.begin());
    }
    ::munmap(start, size);
    return copy;
}

void fill(std::span<std::byte> bytes, unsigned seed) {
    std::uint32_t state = seed * 2654435761U + 1;
    for (std::byte& byte : bytes) {
        state = state * 1664525U + 1013904223U;
        byte = static_cast<std::byte>(state >> 24);
    }
}

std::vector<std::byte> pattern(std::size_t size, unsigned seed) {
    std::vector<std::byte> bytes(size);
    fill(bytes, seed);
    return bytes;
}

TeardownFailures::TeardownFailures() : before_(set_teardown_failure_handler(&note_failure)) {
    const std::lock_guard lock(failures_mutex);
    failures.clear();
}

TeardownFailures::~TeardownFailures() {
    set_teardown_failure_handler(before_);
}

std::vector<TeardownFailures::Failure> TeardownFailures::seen() {
    const std::lock_guard lock(failures_mutex);
    return failures;
}

} // namespace rdmabuf::testing

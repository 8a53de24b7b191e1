// SPDX-License-Identifier: BSD-3-Clause
#include "cache/pages.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {
namespace {

/// The value of MADV_COLLAPSE, which Linux has since version 6.1.
constexpr int collapse = 25;

std::byte* map(std::size_t size) {
    void* const pages = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) {
        // EAGAIN (RLIMIT_MEMLOCK is exceeded after mlockall(2)) is reported as ENOMEM, too.
        throw Error(ENOMEM, "mmap", "no memory for the entries of a registration cache");
    }
    return static_cast<std::byte*>(pages);
}

std::byte* map_aligned(std::size_t size) {
    std::byte* const pages = map(size + Pages::huge);
    const std::size_t before = -reinterpret_cast<std::uintptr_t>(pages) % Pages::huge;
    if (before != 0) {
        ::munmap(pages, before);
    }
    ::munmap(pages + before + size, Pages::huge - before);
    return pages + before;
}

} // namespace

Pages::Pages(std::size_t size)
    : size_(size), pages_(size >= huge ? map_aligned(size) : map(size)) {}

Pages::~Pages() {
    ::munmap(pages_, size_);
}

void Pages::make_huge(std::size_t size) noexcept {
    static_cast<void>(::madvise(pages_, size, MADV_HUGEPAGE));
    static_cast<void>(::madvise(pages_, size, collapse)); // for pages that exist already
}

} // namespace rdmabuf::detail

// SPDX-License-Identifier: BSD-3-Clause
#include "progress.hpp"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>

namespace pingpong {

namespace {

constexpr std::chrono::seconds patience{1};
constexpr std::chrono::milliseconds interval{200};

} // namespace

Progress::Progress(std::uint64_t total)
    : total_(total),
      on_terminal_(isatty(STDERR_FILENO) != 0),
      start_(Clock::now()),
      next_(start_ + patience) {}

Progress::~Progress() {
    if (shown_) {
        std::fputs("\r\033[K", stderr);
    }
}

void Progress::update(std::uint64_t done) {
    if (!on_terminal_ || done == 0) {
        return;
    }
    const auto now = Clock::now();
    if (now < next_) {
        return;
    }
    next_ = now + interval;
    shown_ = true;
    const double elapsed = std::chrono::duration<double>(now - start_).count();
    const double left = elapsed * static_cast<double>(total_ - done) / static_cast<double>(done);
    std::fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " transfers, %.0f s left\033[K", done, total_,
                 left);
}

} // namespace pingpong

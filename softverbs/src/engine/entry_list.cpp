// SPDX-License-Identifier: BSD-3-Clause
#include "entry_list.hpp"

#include <errno.h>

#include <algorithm>
#include <cstring>

namespace softverbs {

namespace {

/// What null regions read as.
constexpr std::size_t zeros_length = std::size_t{64} * 1024;
const std::byte* zeros() {
    static const std::array<std::byte, zeros_length> bytes{};
    return bytes.data();
}

int fetch_piece(fabric::Connection* from, std::uint64_t address, std::uint32_t share,
                std::span<std::byte> into) {
    if (from != nullptr) {
        return from->pull(address, share, into);
    }
    std::memcpy(into.data(), reinterpret_cast<const std::byte*>(address), into.size());
    return 0;
}

} // namespace

EntryList::~EntryList() {
    for (const Window& window : windows()) {
        end_cpu_access(window, write_);
    }
}

void EntryList::add(const Window& window) {
    begin_cpu_access(window, write_);
    windows_[count_++] = window;
}

Denied EntryList::open(const Pd& pd, std::span<const ibv_sge> entries, std::uint64_t length,
                       bool write) {
    write_ = write;
    for (const ibv_sge& entry : entries) {
        if (length == 0) {
            break;
        }
        ibv_sge used = entry;
        used.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(entry.length, length));
        if (used.length == 0) {
            continue;
        }
        Window window{};
        if (const Denied denied = open_local(pd, used, write, window); denied != Denied::no) {
            return denied;
        }
        add(window);
        length -= used.length;
    }
    return Denied::no;
}

void EntryList::open(const Window& window, bool write) {
    write_ = write;
    add(window);
}

template <class Function>
void EntryList::for_each(std::uint64_t offset, std::uint64_t length, Function&& function) const {
    for (const Window& window : windows()) {
        if (length == 0) {
            return;
        }
        if (offset >= window.length) {
            offset -= window.length;
            continue;
        }
        const auto here = std::min<std::uint64_t>(window.length - offset, length);
        function(window.data == nullptr ? nullptr : window.data + offset,
                 static_cast<std::size_t>(here));
        offset = 0;
        length -= here;
    }
}

void EntryList::put(std::uint64_t offset, std::span<const std::byte> bytes) const {
    const std::byte* from = bytes.data();
    for_each(offset, bytes.size(), [&](std::byte* to, std::size_t length) {
        if (to != nullptr) {
            std::memcpy(to, from, length);
        }
        from += length;
    });
}

int EntryList::fetch(std::uint64_t offset, fabric::Connection* from, fabric::Lane lane,
                     std::span<const fabric::Segment> segments) const {
    int error = 0;
    for (const fabric::Segment& in_record : segments) {
        const fabric::Segment segment = in_record; // the sender could still write to it
        const auto stands = [&] { return from == nullptr || from->stands(lane, segment.offer); };
        error = error == 0 && !stands() ? ESTALE : error;
        std::uint64_t done = 0;
        for_each(offset, segment.length, [&](std::byte* to, std::size_t length) {
            if (to != nullptr && error == 0) {
                error = fetch_piece(from, segment.address + done, segment.share, {to, length});
            }
            done += length;
        });
        offset += segment.length;
        error = error == 0 && !stands() ? ESTALE : error;
    }
    return error;
}

std::size_t EntryList::parts(std::uint64_t offset, std::uint64_t length,
                             std::span<std::span<const std::byte>> out) const {
    std::size_t count = 0;
    for_each(offset, length, [&](const std::byte* from, std::size_t here) {
        out[count++] = from != nullptr ? std::span(from, here)
                                       : std::span(zeros(), std::min(here, zeros_length));
    });
    return count;
}

} // namespace softverbs

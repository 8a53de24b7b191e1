// SPDX-License-Identifier: BSD-3-Clause
#include "engine/entry_list.hpp"

#include <errno.h>

#include <algorithm>
#include <cstring>

namespace softverbs {

namespace {

/// Size in bytes of the bounce buffer. It is larger than the data of any packet.
constexpr std::size_t buffer_length = std::size_t{64} * 1024;

/// Returns the bounce buffer, through which data is copied from and to memory that the CPU cannot
/// access. Process::lock protects the buffer.
std::span<std::byte> bounce_buffer() {
    static std::array<std::byte, buffer_length> bytes{};
    return bytes;
}

int fetch_bytes(fabric::Connection* from, std::uint64_t address, std::uint32_t share,
                std::span<std::byte> into) {
    if (from != nullptr) {
        return from->pull(address, share, into);
    }
    std::memcpy(into.data(), reinterpret_cast<const std::byte*>(address), into.size());
    return 0;
}

int fetch_piece(fabric::Connection* from, std::uint64_t address, std::uint32_t share,
                const Window& window, std::uint64_t offset, std::size_t length) {
    if (!is_unmapped(window)) {
        return fetch_bytes(from, address, share, {window.data + offset, length});
    }
    for (std::size_t done = 0; done < length;) {
        const auto part = bounce_buffer().first(std::min(length - done, buffer_length));
        if (const int error = fetch_bytes(from, address + done, share, part); error != 0) {
            return error;
        }
        if (!copy_to(window, offset + done, part)) {
            return EFAULT;
        }
        done += part.size();
    }
    return 0;
}

} // namespace

EntryList::~EntryList() {
    for (const Window& window : windows()) {
        sync_cpu_access(window, write_, false);
    }
}

void EntryList::add(const Window& window) {
    sync_cpu_access(window, write_, true);
    windows_[count_++] = window;
}

bool EntryList::open(const Pd& pd, std::span<const ibv_sge> entries, std::uint64_t length,
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
        if (!open_local(pd, used, write, window)) {
            return false;
        }
        add(window);
        length -= used.length;
    }
    return true;
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
        function(window, offset, static_cast<std::size_t>(here));
        offset = 0;
        length -= here;
    }
}

bool EntryList::put(std::uint64_t offset, std::span<const std::byte> bytes) const {
    bool written = true;
    for_each(offset, bytes.size(), [&](const Window& to, std::uint64_t at, std::size_t length) {
        written = copy_to(to, at, bytes.first(length)) && written;
        bytes = bytes.subspan(length);
    });
    return written;
}

int EntryList::fetch(std::uint64_t offset, fabric::Connection* from, fabric::Lane lane,
                     std::span<const fabric::Segment> segments, std::uint64_t& done,
                     std::uint64_t limit) const {
    int error = 0;
    std::uint64_t position = 0; // offset of the segment in the data
    const std::uint64_t end = done + limit;
    for (const fabric::Segment& in_record : segments) {
        // Copy the segment (address and length of data in the sending process) before its check,
        // because the sender could change the original in shared memory after the check.
        const fabric::Segment segment = in_record;
        const std::uint64_t first = std::max(position, done);
        const std::uint64_t last = std::min(position + segment.length, end);
        if (first < last) {
            const auto stands = [&] {
                return from == nullptr || from->stands(lane, segment.offer);
            };
            error = stands() ? 0 : ESTALE;
            std::uint64_t address = segment.address + (first - position);
            for_each(offset + first, last - first,
                     [&](const Window& to, std::uint64_t at, std::size_t length) {
                         if (to.data != nullptr && error == 0) {
                             error = fetch_piece(from, address, segment.share, to, at, length);
                         }
                         address += length;
                     });
            error = error == 0 && !stands() ? ESTALE : error;
            if (error != 0) {
                return error;
            }
            done = last;
        }
        position += segment.length;
    }
    return 0;
}

std::optional<std::size_t> EntryList::parts(std::uint64_t offset, std::uint64_t length,
                                            std::span<std::span<const std::byte>> out) const {
    std::size_t count = 0;
    std::size_t copied = 0;
    bool copies = true;
    for_each(offset, length, [&](const Window& from, std::uint64_t at, std::size_t here) {
        if (from.data == nullptr || is_unmapped(from)) {
            const auto part = bounce_buffer().subspan(copied, here);
            copies = copy_from(from, at, part) && copies;
            copied += here;
            out[count++] = part;
        } else {
            out[count++] = std::span(from.data + at, here);
        }
    });
    return copies ? std::optional(count) : std::nullopt;
}

} // namespace softverbs

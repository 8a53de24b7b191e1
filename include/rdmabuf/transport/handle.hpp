// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <rdmabuf/result.hpp>

namespace rdmabuf::transport {

/// Where a Listener can be reached: bytes for a launcher to carry, through MPI, a file or a
/// key-value store. Copying the bytes is all it takes.
class Handle {
  public:
    /// Bytes of it, on the wire as in memory.
    static constexpr std::size_t wire_size = 48;

    /// One that leads nowhere.
    Handle() noexcept = default;

    [[nodiscard]] std::span<const std::byte, wire_size> bytes() const noexcept {
        return std::as_bytes(std::span<const Handle, 1>(this, 1)).template first<wire_size>();
    }
    /// Reads what bytes() gave. Any bytes give a handle or an error: EMSGSIZE for fewer than
    /// wire_size (more are ignored: carriers pad), EPROTO for bytes that are no handle or that were
    /// changed on the way, EPROTONOSUPPORT for one of another version of this library.
    [[nodiscard]] static Result<Handle> decode(std::span<const std::byte> bytes) noexcept {
        if (bytes.size() < wire_size) {
            return ErrorInfo{EMSGSIZE, "decode",
                             "fewer bytes than a handle of a listener has: it was cut short"};
        }
        Handle handle;
        std::memcpy(&handle, bytes.data(), wire_size);
        if (handle.magic_ != magic) {
            return ErrorInfo{EPROTO, "decode", "these bytes are no handle of a listener"};
        }
        if (handle.version_ != version) {
            return ErrorInfo{
                EPROTONOSUPPORT, "decode",
                "the handle is of another version: use the same release of rdmabuf everywhere"};
        }
        if (handle.check_ != handle.checksum()) {
            return ErrorInfo{EPROTO, "decode", "the handle was changed on its way"};
        }
        return handle;
    }

    // What an Endpoint makes of it.

    /// @param address  an IPv6 address, or an IPv4 one mapped to it
    Handle(const std::array<std::uint8_t, 16>& address, std::uint32_t scope, std::uint16_t port,
           std::uint64_t token) noexcept
        : magic_(magic),
          version_(version),
          port_(port),
          token_(token),
          address_(address),
          scope_(scope) {
        check_ = checksum(); // NOLINT(*-prefer-member-initializer): it is of the others
    }
    [[nodiscard]] const std::array<std::uint8_t, 16>& address() const noexcept { return address_; }
    [[nodiscard]] std::uint32_t scope() const noexcept { return scope_; }
    /// In host byte order.
    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
    /// By which a listener knows those that it was meant for.
    [[nodiscard]] std::uint64_t token() const noexcept { return token_; }

    friend bool operator==(const Handle&, const Handle&) noexcept = default;

  private:
    static constexpr std::uint32_t magic = 0x48544452; // "RDTH"
    static constexpr std::uint16_t version = 1;

    /// FNV-1a of all that stands before it.
    [[nodiscard]] std::uint64_t checksum() const noexcept {
        std::uint64_t sum = 0xcbf29ce484222325;
        for (const std::byte byte : bytes().template first<wire_size - sizeof check_>()) {
            sum = (sum ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
        }
        return sum;
    }

    std::uint32_t magic_ = 0;
    std::uint16_t version_ = 0;
    std::uint16_t port_ = 0;
    std::uint64_t token_ = 0;
    std::array<std::uint8_t, 16> address_{};
    std::uint32_t scope_ = 0;
    std::uint32_t reserved_ = 0;
    std::uint64_t check_ = 0;
};

static_assert(sizeof(Handle) == Handle::wire_size && sizeof(Handle) <= 128);
static_assert(std::is_trivially_copyable_v<Handle>);

} // namespace rdmabuf::transport

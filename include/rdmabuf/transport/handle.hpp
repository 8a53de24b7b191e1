// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <rdmabuf/error.hpp>
#include <rdmabuf/transport/detail/checksum.hpp>

namespace rdmabuf::transport {

/// The address of a Listener, and two secrets by which the listener and a connector prove to each
/// other that they have this handle. A program transfers the bytes of a handle to its peers, for
/// example through MPI, a file or a key-value store. Every process that has the bytes can connect,
/// so they must be kept secret.
class Handle {
  public:
    /// The size of a handle in bytes; the wire format is the memory layout.
    static constexpr std::size_t wire_size = 72;
    /// A secret of 128 random bits.
    using Secret = std::array<std::byte, 16>;

    /// Creates an empty handle, with which no peer can connect.
    Handle() noexcept = default;

    [[nodiscard]] std::span<const std::byte, wire_size> bytes() const noexcept {
        return std::as_bytes(std::span<const Handle, 1>(this, 1)).template first<wire_size>();
    }
    /// Decodes the bytes of a handle. Only the first wire_size bytes are used, because some
    /// launchers append padding.
    /// @return a handle, or an error: EMSGSIZE for fewer bytes than wire_size; EPROTO for bytes
    ///         that are not a handle or were modified in transit; EPROTONOSUPPORT for a handle of
    ///         another version of this library
    [[nodiscard]] static Result<Handle> decode(std::span<const std::byte> bytes) noexcept {
        if (bytes.size() < wire_size) {
            return ErrorInfo{EMSGSIZE, "decode",
                             "the handle is truncated: it has fewer bytes than Handle::wire_size"};
        }
        Handle handle;
        std::memcpy(&handle, bytes.data(), wire_size);
        if (handle.magic_ != magic) {
            return ErrorInfo{EPROTO, "decode", "these bytes are not the handle of a listener"};
        }
        if (handle.version_ != version) {
            return ErrorInfo{
                EPROTONOSUPPORT, "decode",
                "the handle is of another version: use the same release of rdmabuf everywhere"};
        }
        if (handle.check_ != handle.checksum()) {
            return ErrorInfo{EPROTO, "decode",
                             "the handle was modified in transit: its checksum is wrong"};
        }
        return handle;
    }

    // Only the transport itself calls the following functions.

    /// Creates the handle of a listener.
    /// @param address  an IPv6 address, or an IPv4 address mapped to IPv6
    /// @param scope    the scope ID of a link-local IPv6 address; 0 for all other addresses
    /// @param port     the TCP port, in host byte order
    Handle(const std::array<std::uint8_t, 16>& address, std::uint32_t scope, std::uint16_t port,
           const Secret& connector_secret, const Secret& listener_secret) noexcept
        : magic_(magic),
          version_(version),
          port_(port),
          connector_secret_(connector_secret),
          listener_secret_(listener_secret),
          address_(address),
          scope_(scope) {
        check_ = checksum(); // NOLINT(*-prefer-member-initializer): covers the other members
    }
    [[nodiscard]] const std::array<std::uint8_t, 16>& address() const noexcept { return address_; }
    [[nodiscard]] std::uint32_t scope() const noexcept { return scope_; }
    /// Returns the TCP port of the listener, in host byte order.
    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
    /// Returns the secret that the connector sends first. The secret proves that the connector has
    /// the handle.
    [[nodiscard]] const Secret& connector_secret() const noexcept { return connector_secret_; }
    /// Returns the secret that the listener sends. The secret proves that this listener created the
    /// handle.
    [[nodiscard]] const Secret& listener_secret() const noexcept { return listener_secret_; }

    friend bool operator==(const Handle&, const Handle&) noexcept = default;

  private:
    static constexpr std::uint32_t magic = 0x48544452; // "RDTH"
    static constexpr std::uint16_t version = 2;

    /// Returns the checksum of all bytes of the handle that stand before check_.
    [[nodiscard]] std::uint64_t checksum() const noexcept {
        return detail::checksum(bytes().template first<wire_size - sizeof check_>());
    }

    std::uint32_t magic_ = 0;
    std::uint16_t version_ = 0;
    std::uint16_t port_ = 0;
    Secret connector_secret_{};
    Secret listener_secret_{};
    std::array<std::uint8_t, 16> address_{};
    std::uint32_t scope_ = 0;
    std::uint32_t reserved_ = 0;
    std::uint64_t check_ = 0;
};

/// Compares two secrets. The comparison does not end at the first difference, so that its duration
/// does not reveal how many bytes match.
[[nodiscard]] inline bool same_secret(const Handle::Secret& left,
                                      const Handle::Secret& right) noexcept {
    std::byte difference{};
    for (std::size_t i = 0; i < left.size(); ++i) {
        difference |= left[i] ^ right[i];
    }
    return difference == std::byte{};
}

static_assert(sizeof(Handle) == Handle::wire_size && sizeof(Handle) <= 128);
static_assert(std::is_trivially_copyable_v<Handle>);

} // namespace rdmabuf::transport

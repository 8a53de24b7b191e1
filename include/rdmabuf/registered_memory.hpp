// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/registration_trail.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/status.hpp>
#include <rdmabuf/work_completion.hpp>

namespace rdmabuf {

enum class RegistrationState : std::uint8_t {
    /// The keys may be used.
    registered,
    /// The memory behind the keys is gone or was taken back: they lead nowhere, and have to be
    /// given back with close() all the same.
    revoked,
    /// Nothing is registered any more.
    closed,
};
/// "registered", "revoked", "closed".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(RegistrationState state) noexcept;

/// Whether a completion may come of a revoked region: a protection or access error, at this end or
/// at the peer's. It may as well come of a wrong key or address; RegisteredMemory::verify() tells.
[[nodiscard]] RDMABUF_EXPORT bool may_mean_revocation(const WorkCompletion& completion) noexcept;
/// The same of asynchronous events: IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL and
/// IBV_EVENT_DEVICE_FATAL. Verbs has no event about a region.
[[nodiscard]] RDMABUF_EXPORT bool may_mean_revocation(const AsyncEvent& event) noexcept;

namespace detail {

/// A region however it was registered.
class AnyRegion : public Region {
  public:
    /* implicit */ AnyRegion(Region&& region) noexcept : Region(std::move(region)) {}
    AnyRegion(RegionHandle handle, std::uint64_t iova, std::size_t length, Access access) noexcept
        : Region(std::move(handle), iova, length, access) {}
};

/// How memory is registered on one protection domain.
struct NicPath {
    RegistrationPath path{};
    MappingKind mapping = MappingKind::standard;
};

/// What one registration made, and how.
struct RegisteredSet {
    std::vector<AnyRegion> regions = {};
    std::atomic<RegistrationState> state{RegistrationState::registered};
    /// One for each protection domain.
    std::vector<NicPath> nics = {};
    std::uintptr_t address = 0;
    std::size_t length = 0;
    std::uint64_t iova = 0;
    Access access{};
    std::string exporter = {};
    std::optional<Allocation> allocation = std::nullopt;
    Trail trail = {};
};

} // namespace detail

/// What Registration and ChunkedRegion have in common: how the memory came to be registered,
/// whether it still is, and giving it back. Moves only.
///
/// **Revocation.** A registered dma-buf can die under its keys: its owner frees it, a driver is
/// unbound, a virtual function reset. Verbs tells nobody; the program sees completions that failed,
/// or IBV_EVENT_QP_ACCESS_ERR. Whoever notices says so with mark_revoked(), from any thread, or has
/// verify() look; from then on check() says ENODEV, and whatever gives out a key throws it.
///
/// Deregistering calls verbs only, never a vendor's driver: the memory may be gone.
class RDMABUF_EXPORT RegisteredMemory {
  public:
    RegisteredMemory(RegisteredMemory&&) noexcept = default;
    RegisteredMemory& operator=(RegisteredMemory&&) noexcept = default;
    RegisteredMemory(const RegisteredMemory&) = delete;
    RegisteredMemory& operator=(const RegisteredMemory&) = delete;

    /// The path that worked on protection domain @p i.
    [[nodiscard]] RegistrationPath path(std::size_t i = 0) const noexcept {
        return set_->nics[i].path;
    }
    /// The mapping that the exporter exported for protection domain @p i, on the dma-buf paths.
    /// NICs of one registration may need different mappings.
    [[nodiscard]] MappingKind mapping(std::size_t i = 0) const noexcept {
        return set_->nics[i].mapping;
    }
    /// Everything that was tried; the last attempt is the one that worked.
    [[nodiscard]] const Trail& trail() const noexcept { return set_->trail; }
    /// The name of the exporter whose memory it is; empty for ordinary host memory.
    [[nodiscard]] const std::string& exporter() const noexcept { return set_->exporter; }
    /// What that exporter said of the address when it was registered.
    [[nodiscard]] const std::optional<Allocation>& allocation() const noexcept {
        return set_->allocation;
    }

    /// Where the memory begins, as its owner counts.
    [[nodiscard]] std::uintptr_t address() const noexcept { return set_->address; }
    /// In bytes.
    [[nodiscard]] std::size_t length() const noexcept { return set_->length; }
    /// Where it begins as the NIC counts.
    [[nodiscard]] std::uint64_t iova() const noexcept { return set_->iova; }
    [[nodiscard]] Access access() const noexcept { return set_->access; }

    [[nodiscard]] RegistrationState state() const noexcept {
        return set_ != nullptr ? set_->state.load(std::memory_order_relaxed)
                               : RegistrationState::closed;
    }
    /// Whether the keys may be used, for the data path: success, ENODEV when revoked, EBADF when
    /// closed.
    [[nodiscard]] Status check() const noexcept {
        switch (state()) {
            case RegistrationState::registered:
                return {};
            case RegistrationState::revoked:
                return Status(ENODEV);
            case RegistrationState::closed:
                break;
        }
        return Status(EBADF);
    }

    /// Says that the memory is gone. Any thread may call it, while this object lives and is not
    /// being moved or closed. What is closed stays closed.
    void mark_revoked() noexcept;
    /// Queries the exporter, and marks this registration as revoked if the allocation was freed or
    /// replaced since it was registered. Calls the vendor's driver: use it when
    /// may_mean_revocation() says so, not on the data path. Memory registered by
    /// RegistrationPath::host is never marked, because it stays pinned. Where the exporter has no
    /// generations (Allocation::generation is 0), only freed memory is noticed.
    /// @throws Error ENOENT when @p resolver does not have that exporter, or what the driver says.
    RegistrationState verify(const Resolver& resolver);

    /// Deregisters everything. @throws Error what ibv_dereg_mr(3) says first (EBUSY: memory windows
    /// are bound to it): all that could be deregistered is, the rest stays owned, the state stays
    /// what it was, and close() can be called again.
    void close();

  protected:
    explicit RegisteredMemory(std::unique_ptr<detail::RegisteredSet> set) noexcept
        : set_(std::move(set)) {}
    ~RegisteredMemory() = default;

    /// A region whose keys may be used. @throws Error ENODEV, EBADF as check(), and EBADF for one
    /// that a close() that failed has deregistered.
    [[nodiscard]] const detail::AnyRegion& usable(std::size_t i, const char* function) const {
        if (!check() || set_->regions[i].native() == nullptr) {
            refuse(function);
        }
        return set_->regions[i];
    }
    [[noreturn]] void refuse(const char* function) const;

    [[nodiscard]] detail::RegisteredSet& set() noexcept { return *set_; }
    [[nodiscard]] const detail::RegisteredSet& set() const noexcept { return *set_; }

  private:
    std::unique_ptr<detail::RegisteredSet> set_;
};

} // namespace rdmabuf

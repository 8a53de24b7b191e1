// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/registration_trail.hpp>
#include <rdmabuf/status.hpp>

namespace rdmabuf {

enum class RegistrationState : std::uint8_t {
    /// The memory is registered, and its keys may be used.
    registered,
    /// The memory was freed or revoked, so its keys are no longer valid. The memory regions still
    /// exist, and close() must deregister them.
    revoked,
    /// The memory was deregistered.
    closed,
};
/// Returns "registered", "revoked" or "closed".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(RegistrationState state) noexcept;

/// Returns true if a revoked region can cause this completion: a protection or access error on this
/// side or at the peer. Because a wrong key or address causes the same errors, call
/// RegisteredMemory::verify() to check if the memory was revoked.
[[nodiscard]] RDMABUF_EXPORT bool may_mean_revocation(const WorkCompletion& completion) noexcept;
/// Returns true if a revoked region can cause this asynchronous event: IBV_EVENT_QP_ACCESS_ERR,
/// IBV_EVENT_QP_FATAL or IBV_EVENT_DEVICE_FATAL. Verbs has no asynchronous event for a memory
/// region.
[[nodiscard]] RDMABUF_EXPORT bool may_mean_revocation(const AsyncEvent& event) noexcept;

namespace detail {

class CacheCore;

/// A memory region that was registered by any RegistrationPath.
class AnyRegion : public Region {
  public:
    /* implicit */ AnyRegion(Region&& region) noexcept : Region(std::move(region)) {}
    AnyRegion(RegionHandle handle, std::uint64_t iova, std::size_t length, Access access) noexcept
        : Region(std::move(handle), iova, length, access) {}
};

/// The registration path of a protection domain, and the kind of the exported dma-buf mapping.
struct NicPath {
    RegistrationPath path{};
    MappingKind mapping = MappingKind::standard;
};

/// The memory regions of one registration, and the data about the registration, such as the paths
/// and mappings.
struct RegisteredSet {
    std::vector<AnyRegion> regions = {};
    std::atomic<RegistrationState> state{RegistrationState::registered};
    /// The path and the mapping of each protection domain, in the order of `regions`.
    std::vector<NicPath> nics = {};
    std::uintptr_t address = 0;
    std::size_t length = 0;
    std::uint64_t iova = 0;
    Access access{};
    /// The name of the exporter.
    std::string exporter = {};
    /// The exporter. Not owned, because the destruction of an exporter may call the vendor's
    /// driver, and a deregistration must not.
    std::weak_ptr<const Exporter> source = {};
    std::optional<Allocation> allocation = std::nullopt;
    Trail trail = {};
};

} // namespace detail

/// The common base of Registration and ChunkedRegion: how the memory was registered, whether it is
/// still valid, and deregistration. It can be moved but not copied.
///
/// **Revocation.** The memory behind a registered dma-buf can become invalid: its owner frees it, a
/// driver is unbound, or a virtual function is reset. Verbs does not report this. The program only
/// sees failed completions or IBV_EVENT_QP_ACCESS_ERR. The program then calls mark_revoked() from
/// any thread, or verify(), which queries the exporter. Afterwards check() returns ENODEV, and all
/// functions that return a key throw ENODEV.
///
/// Deregistration calls only verbs, and never the vendor's driver, because the memory may already
/// have been freed.
class RDMABUF_EXPORT RegisteredMemory {
  public:
    RegisteredMemory(RegisteredMemory&&) noexcept = default;
    RegisteredMemory& operator=(RegisteredMemory&&) noexcept = default;
    RegisteredMemory(const RegisteredMemory&) = delete;
    RegisteredMemory& operator=(const RegisteredMemory&) = delete;

    /// Returns the registration path that protection domain @p i uses.
    [[nodiscard]] RegistrationPath path(std::size_t i = 0) const noexcept {
        return set_->nics[i].path;
    }
    /// Returns the kind of the mapping that was exported for protection domain @p i. The result has
    /// a meaning only for the dma-buf paths. The NICs of one registration may need different
    /// mappings.
    [[nodiscard]] MappingKind mapping(std::size_t i = 0) const noexcept {
        return set_->nics[i].mapping;
    }
    /// Returns all attempts to register the memory; the last attempt succeeded.
    [[nodiscard]] const Trail& trail() const noexcept { return set_->trail; }
    /// Returns the name of the memory's exporter; empty if no exporter owns the memory.
    [[nodiscard]] const std::string& exporter() const noexcept { return set_->exporter; }
    /// Returns the allocation that the exporter reported when the memory was registered. The result
    /// is empty for ordinary host memory.
    [[nodiscard]] const std::optional<Allocation>& allocation() const noexcept {
        return set_->allocation;
    }

    /// Returns the CPU or device address of the first byte of the memory.
    [[nodiscard]] std::uintptr_t address() const noexcept { return set_->address; }
    /// Returns the length of the memory in bytes.
    [[nodiscard]] std::size_t length() const noexcept { return set_->length; }
    /// Returns the iova: the address of the first byte for scatter-gather entries and remote
    /// operations.
    [[nodiscard]] std::uint64_t iova() const noexcept { return set_->iova; }
    [[nodiscard]] Access access() const noexcept { return set_->access; }

    [[nodiscard]] RegistrationState state() const noexcept {
        return set_ != nullptr ? set_->state.load(std::memory_order_relaxed)
                               : RegistrationState::closed;
    }
    /// Returns success if the keys may be used, ENODEV if the memory was revoked, and EBADF if this
    /// object was closed. The function makes no system call, so the data path can call it.
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

    /// Marks the memory as revoked. Call this function when the memory was freed or its mapping is
    /// no longer valid. Any thread may call this function, but not while this object is moved,
    /// closed or destroyed. After close(), the function has no effect.
    void mark_revoked() noexcept;
    /// Queries the exporter of this memory, and marks this registration as revoked if the
    /// allocation was freed or replaced since the registration. This calls the vendor's driver, so
    /// do not call it on the data path; call it when may_mean_revocation() returns true. Memory
    /// registered by RegistrationPath::host is never marked, because it stays pinned. If the
    /// exporter has no generations (Allocation::generation is 0), verify() detects freed memory but
    /// not replaced memory.
    /// @throws Error ENOENT if the exporter was destroyed: the program must keep the exporter, or a
    ///         Resolver that has it; the errno value of the exporter's driver if the query fails
    RegistrationState verify();

    /// Deregisters the memory on all protection domains. After an error, this object still owns the
    /// regions that could not be deregistered, the state is unchanged, and close() can be called
    /// again.
    /// @throws Error with the first errno value of ibv_dereg_mr(3): EBUSY while memory windows are
    ///         bound to a region
    void close();

  protected:
    explicit RegisteredMemory(std::unique_ptr<detail::RegisteredSet> set) noexcept
        : set_(std::move(set)) {}
    ~RegisteredMemory() = default;

    /// Returns region @p i, whose keys may be used.
    /// @throws Error ENODEV if the memory was revoked; EBADF if this object was closed, or if a
    ///         failed close() has already deregistered this region
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
    friend class detail::CacheCore;

    std::unique_ptr<detail::RegisteredSet> set_;
};

} // namespace rdmabuf

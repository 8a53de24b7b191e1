// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/detail/export.hpp>

namespace rdmabuf::detail {

/// Returns the number of fork(2) calls between the process that loaded librdmabuf and this process.
/// A handler of pthread_atfork(3) counts the calls.
[[nodiscard]] RDMABUF_EXPORT unsigned fork_generation() noexcept;
/// The number that fork_generation() returns. Reading it needs no function call.
RDMABUF_EXPORT extern unsigned fork_count;

/// Stores which process created an object. After fork(2), the child process has copies of the
/// objects of its parent process. The destructors of these copies must not destroy the verbs
/// objects of the parent process. See docs/fork.md.
class CreatorProcess {
  public:
    /// Returns true in the process that created the object, and false in a child process after
    /// fork(2).
    [[nodiscard]] bool is_current() const noexcept { return generation_ == fork_count; }

  private:
    unsigned generation_ = fork_generation();
};

/// Calls the handler that set_teardown_failure_handler() has set. Destructors and other functions
/// that cannot throw call this function if they cannot release a resource.
/// @param function  the name of the C function that failed
/// @param error     a positive errno value
RDMABUF_EXPORT void report_teardown_failure(const char* function, int error) noexcept;

/// Determines what the destructor of a handle does with the object.
enum class Ownership : std::uint8_t {
    /// The handle created the object or took ownership of it. Destroy::call() destroys the object.
    created,
    /// The object was imported from another process. Destroy::unimport() ends the import but does
    /// not destroy the object.
    imported,
    /// Other code owns the object, or the handle has released or destroyed it.
    borrowed,
};

/// A deleter that destroys a C object, and then releases the parents of the object.
///
/// The parents are members of the deleter because of unique_ptr's move assignment: it destroys the
/// old object before it assigns the deleter. If the parents were members beside the unique_ptr, a
/// defaulted move assignment could release an old parent while its child exists, and verbs would
/// return EBUSY.
///
/// @tparam Destroy  a type with the static members `const char* name` and `int call(T*)`, which
///                  returns 0 or an errno value and is noexcept. call() may also have the
///                  parameters `const Parents&...`. For objects that can be imported, the type also
///                  has `void unimport(T*)`.
template <class Destroy, class... Parents>
class HandleDeleter {
  public:
    HandleDeleter() = default;
    [[nodiscard]] static HandleDeleter holding(Parents... parents) {
        HandleDeleter deleter;
        deleter.parents_.emplace(std::move(parents)...);
        return deleter;
    }
    /// Returns a deleter for an object that other code owns and destroys.
    [[nodiscard]] static HandleDeleter borrowing(Parents... parents) {
        HandleDeleter deleter = holding(std::move(parents)...);
        deleter.disown();
        return deleter;
    }

    template <class T>
    void operator()(T* handle) const noexcept {
        if (const int error = destroy(handle); error != 0) {
            report_teardown_failure(Destroy::name, error);
        }
    }

    /// Destroys a created object, or ends the import of an imported object. Does nothing for a
    /// borrowed object, and nothing in a child process after fork(2), because the object belongs to
    /// the parent process.
    /// @return 0 or an errno value
    template <class T>
    [[nodiscard]] int destroy(T* handle) const noexcept {
        if (!creator_.is_current()) {
            return 0;
        }
        if (ownership_ == Ownership::created) {
            if constexpr (requires { Destroy::call(handle); }) {
                return Destroy::call(handle);
            } else {
                return std::apply(
                    [handle](const Parents&... parents) {
                        return Destroy::call(handle, parents...);
                    },
                    *parents_);
            }
        }
        if constexpr (requires { Destroy::unimport(handle); }) {
            if (ownership_ == Ownership::imported) {
                Destroy::unimport(handle);
            }
        }
        return 0;
    }

    /// Ends the ownership of the object. After this call, destroy() does nothing.
    void disown() noexcept { ownership_ = Ownership::borrowed; }
    /// Marks the object as imported from another process, so that destroy() only ends the import.
    void set_imported() noexcept { ownership_ = Ownership::imported; }

    /// Returns the parent with the index @p I in Parents.
    /// @param accessor  the name of the calling public function, for the error text
    /// @param type      the name of the class of the calling function
    /// @throws Error EBADF if the object was closed
    template <std::size_t I>
    [[nodiscard]] const auto& parent(const char* accessor, const char* type) const {
        if (!parents_) {
            raise_closed(accessor, type);
        }
        return std::get<I>(*parents_);
    }

  private:
    std::optional<std::tuple<Parents...>> parents_;
    Ownership ownership_ = Ownership::created;
    CreatorProcess creator_;
};

/// A unique_ptr that owns a C object and keeps the parents of the object alive.
template <class T, class Destroy, class... Parents>
using unique_handle = std::unique_ptr<T, HandleDeleter<Destroy, Parents...>>;

/// Destroys the object of @p handle now.
/// @throws Error with the errno value that @p Destroy returns. The handle then still owns the
///         object, and the caller can call close_handle() again.
template <class T, class Destroy, class... Parents>
void close_handle(std::unique_ptr<T, HandleDeleter<Destroy, Parents...>>& handle) {
    if (handle == nullptr) {
        return;
    }
    check_zero(handle.get_deleter().destroy(handle.get()), Destroy::name);
    handle.get_deleter().disown();
    handle.reset();
    handle.get_deleter() = HandleDeleter<Destroy, Parents...>();
}

/// Copies of this handle share the ownership of a C object. The destructor of the last copy
/// destroys the object, unless the object was released. get() needs one load from memory, as a
/// plain pointer does.
template <class T, class Destroy, class... Parents>
class shared_handle {
  public:
    using unique = unique_handle<T, Destroy, Parents...>;

    shared_handle() = default;
    /* implicit */ shared_handle(unique handle) {
        T* const native = handle.get();
        if (native != nullptr) {
            auto held = std::make_shared<unique>(std::move(handle));
            held_ = held.get();
            handle_ = std::shared_ptr<T>(std::move(held), native);
        }
    }

    /// Returns a handle that does not own @p native and never destroys it.
    [[nodiscard]] static shared_handle borrow(T* native, Parents... parents) {
        return shared_handle(
            unique(native, unique::deleter_type::borrowing(std::move(parents)...)));
    }

    [[nodiscard]] T* get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    /// Returns the parent with the index @p I, as HandleDeleter::parent() does.
    /// @throws Error EBADF if the object was closed, or the handle was released or moved from
    template <std::size_t I>
    [[nodiscard]] const auto& parent(const char* accessor, const char* type) const {
        if (handle_ == nullptr) {
            raise_closed(accessor, type);
        }
        return deleter().template parent<I>(accessor, type);
    }

    /// Transfers ownership to the caller and empties this handle.
    /// @return nullptr if this handle is empty, otherwise the object. The caller must destroy the
    ///         object, or end its import if it was imported. If it was borrowed, only its owner may
    ///         destroy it. Other copies of this handle can still use the object and keep the
    ///         parents alive. If there is no other copy, this call releases the parents
    [[nodiscard]] T* release() noexcept {
        if (handle_ == nullptr) {
            return nullptr;
        }
        deleter().disown();
        T* const native = handle_.get();
        handle_.reset();
        return native;
    }

    /// Destroys the object. If this fails, the handle still owns the object.
    /// @throws Error EBUSY if copies of this handle still exist, for example in child objects; the
    ///         errno value of the C function that failed
    void close() {
        if (handle_ == nullptr) {
            return;
        }
        if (handle_.use_count() > 1) {
            raise(EBUSY, Destroy::name,
                  "copies of this object, or objects created from it, still exist: destroy them "
                  "first");
        }
        check_zero(deleter().destroy(handle_.get()), Destroy::name);
        deleter().disown();
        handle_.reset();
    }

  private:
    // This function does not use std::get_deleter(), which returns null in programs without
    // run-time type information.
    [[nodiscard]] auto& deleter() const noexcept { return held_->get_deleter(); }

    std::shared_ptr<T> handle_;
    /// Points to the unique_ptr that all copies of this handle share. The pointer is valid if
    /// handle_ is not null.
    unique* held_ = nullptr;
};

} // namespace rdmabuf::detail

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
#include <rdmabuf/detail/fork.hpp>

namespace rdmabuf::detail {

/// Passes a failed teardown to the handler set with set_teardown_failure_handler().
RDMABUF_EXPORT void report_teardown_failure(const char* function, int error) noexcept;

/// How a handle has come by its object, which decides what ends it.
enum class Ownership : std::uint8_t {
    /// Created or taken over: Destroy::call() destroys the object.
    created,
    /// Imported from another process: Destroy::unimport() ends the import, and the object stays.
    imported,
    /// Other code destroys the object.
    borrowed,
};

/// Destroys a C object, then lets go of the parents it was made from.
///
/// The parents live in the deleter, not beside the handle, because unique_ptr's move assignment
/// resets the old object before it assigns the deleter: with plain members, the defaulted
/// assignment would drop the old parent while its child still exists (and verbs says EBUSY).
///
/// @tparam Destroy  a type with `static constexpr const char* name` and
///                  `static int call(T*) noexcept`, which returns 0 or an errno value; call() may
///                  also take the parents, as `const Parents&...`. Objects that can be imported
///                  also need `static void unimport(T*) noexcept`
template <class Destroy, class... Parents>
class HandleDeleter {
  public:
    HandleDeleter() = default;
    [[nodiscard]] static HandleDeleter holding(Parents... parents) {
        HandleDeleter deleter;
        deleter.parents_.emplace(std::move(parents)...);
        return deleter;
    }

    template <class T>
    void operator()(T* handle) const noexcept {
        if (const int error = destroy(handle); error != 0) {
            report_teardown_failure(Destroy::name, error);
        }
    }

    /// Destroys the object, or ends its import, as its ownership says. Does nothing in a child by
    /// fork(2), where the object is that of the parent. @return 0 or an errno value
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

    /// From now on other code destroys the object.
    void disown() noexcept { ownership_ = Ownership::borrowed; }
    /// The object was imported: destroy() ends the import.
    void set_imported() noexcept { ownership_ = Ownership::imported; }

    /// @param accessor  the name of the public function, for the error
    /// @param type      the name of its class
    /// @throws Error EBADF when the object was closed
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

/// Sole owner of a C object and holder of its parents.
template <class T, class Destroy, class... Parents>
using unique_handle = std::unique_ptr<T, HandleDeleter<Destroy, Parents...>>;

/// Destroys the object now and reports instead of hiding: when @p Destroy fails, the object stays
/// owned and the call can be repeated.
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

/// A C object with any number of holders; the last one destroys it. get() is one load, as with a
/// plain pointer.
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

    /// Holds an object that somebody else destroys.
    [[nodiscard]] static shared_handle borrow(T* native, Parents... parents) {
        auto deleter = unique::deleter_type::holding(std::move(parents)...);
        deleter.disown();
        return shared_handle(unique(native, std::move(deleter)));
    }

    [[nodiscard]] T* get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    /// As HandleDeleter::parent(), and EBADF when this was released or moved from.
    template <std::size_t I>
    [[nodiscard]] const auto& parent(const char* accessor, const char* type) const {
        if (handle_ == nullptr) {
            raise_closed(accessor, type);
        }
        return deleter().template parent<I>(accessor, type);
    }

    /// The caller destroys the object from now on; every other holder keeps a borrowed handle, and
    /// the parents stay alive until the last of them is gone.
    [[nodiscard]] T* release() noexcept {
        if (handle_ == nullptr) {
            return nullptr;
        }
        deleter().disown();
        T* const native = handle_.get();
        handle_.reset();
        return native;
    }

    /// Destroys the object now. @throws Error EBUSY while anything else still holds it, or
    /// whatever the C call says; the object stays owned then.
    void close() {
        if (handle_ == nullptr) {
            return;
        }
        if (handle_.use_count() > 1) {
            raise(EBUSY, Destroy::name,
                  "other objects made from this one still hold it; destroy them first");
        }
        check_zero(deleter().destroy(handle_.get()), Destroy::name);
        deleter().disown();
        handle_.reset();
    }

  private:
    // Not std::get_deleter: that finds nothing in a program without run-time type information.
    [[nodiscard]] auto& deleter() const noexcept { return held_->get_deleter(); }

    std::shared_ptr<T> handle_;
    /// What all holders share; theirs for as long as handle_ is one.
    unique* held_ = nullptr;
};

} // namespace rdmabuf::detail

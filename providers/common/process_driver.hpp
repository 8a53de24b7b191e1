// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <rdmabuf/exporter.hpp>

#include "base/address_space.hpp"
#include "base/text.hpp"
#include "common/driver_library.hpp"

namespace rdmabuf::detail {

/// Loads the driver of one vendor at most once in a process, and never unloads it. Thread safe.
/// @tparam Driver  a class derived from DriverBase
template <class Driver>
class ProcessDriver {
  public:
    /// The constructor does not copy its arguments, which must outlive this object.
    /// @param names   file names of the library, tried in this order
    /// @param vendor  name of the driver in error texts
    /// @param remedy  remedy in error texts
    ProcessDriver(std::span<const char* const> names, std::string_view vendor,
                  std::string_view remedy) noexcept
        : names_(names), vendor_(vendor), remedy_(remedy) {}

    /// Returns the driver, or null if the process has not loaded the library of the driver. A
    /// process without the library has no memory of this driver. This function does not load the
    /// library.
    /// @throws Error ENOSYS if the library lacks functions that report which allocation contains an
    ///         address
    [[nodiscard]] const Driver* loaded() {
        if (const Copy* const first = first_.load(std::memory_order_acquire); first != nullptr) {
            return &first->driver;
        }
        const auto library = search_.find(names_);
        return library ? &keep(*library).value()->driver : nullptr;
    }

    /// Checks whether another loaded copy of the library knows the memory at @p address, which the
    /// driver of loaded() does not know. A program can load several copies: PyTorch, for example,
    /// brings its own.
    /// @param knows  returns true if the driver of a copy knows the memory
    /// @throws Error EEXIST if another copy knows the memory
    template <class Knows>
    void check_other_copies(std::uintptr_t address, const Knows& knows) {
        find_other_copies();
        for (const Copy* copy = others_.load(std::memory_order_acquire); copy != nullptr;
             copy = copy->next) {
            if (knows(copy->driver)) {
                throw Error(EEXIST, "dlopen",
                            "the memory at " + hexadecimal(address) + " is of " +
                                copy->library.name() + ", and " + first_.load()->library.name() +
                                " was loaded earlier: load one copy of the " +
                                std::string(vendor_) + " only");
            }
        }
    }

    /// Loads the library if the process has not loaded it. After a failure, the next call tries
    /// again.
    /// @return the driver, which lacks at most optional functions, or the reason why it cannot be
    ///         used
    [[nodiscard]] Result<const Driver*> load() {
        const Copy* copy = first_.load(std::memory_order_acquire);
        if (copy == nullptr) {
            auto opened = DriverLibrary::open(names_, vendor_, remedy_);
            if (!opened) {
                return opened.error_info();
            }
            auto kept = keep(*opened);
            if (!kept) {
                return kept.error_info();
            }
            copy = *kept;
        }
        if (const auto& lacking = copy->driver.lacking()) {
            return *lacking;
        }
        return &copy->driver;
    }

  private:
    /// A loaded copy of the library. It is never destroyed, because a static object of the program
    /// can own a buffer. The destructor of such a buffer calls the driver at the end of the
    /// process.
    struct Copy {
        DriverLibrary library;
        Driver driver;
        const Copy* next = nullptr;
    };

    Result<const Copy*> keep(const DriverLibrary& library) {
        auto made = Driver::make(library);
        if (!made) {
            return made.error_info();
        }
        // If another thread has stored a copy first, that copy is used. No mutex is used: a mutex
        // that a thread holds during fork(2) would stay locked in the child.
        auto copy = std::make_unique<const Copy>(Copy{library, *std::move(made)});
        const Copy* stored = nullptr;
        if (!first_.compare_exchange_strong(stored, copy.get(), std::memory_order_acq_rel)) {
            return stored;
        }
        return copy.release();
    }

    /// Adds to `others_` the copies of the library that the process has loaded since the previous
    /// search. loaded() must have returned a driver.
    void find_other_copies() {
        const unsigned long long objects = loaded_objects();
        if (objects == searched_.load(std::memory_order_acquire)) {
            return;
        }
        for (const DriverLibrary& library : DriverLibrary::all_loaded(names_)) {
            bool known = first_.load(std::memory_order_acquire)->library == library;
            for (const Copy* copy = others_.load(std::memory_order_acquire);
                 copy != nullptr && !known; copy = copy->next) {
                known = copy->library == library;
            }
            if (known) {
                continue;
            }
            // A copy that lacks the functions for queries is not added, so it is not queried.
            if (auto made = Driver::make(library)) {
                auto copy = std::make_unique<Copy>(Copy{library, *std::move(made), others_});
                while (!others_.compare_exchange_weak(copy->next, copy.get())) {
                }
                static_cast<void>(copy.release());
            }
        }
        searched_.store(objects, std::memory_order_release);
    }

    std::span<const char* const> names_;
    std::string_view vendor_;
    std::string_view remedy_;
    std::atomic<const Copy*> first_{nullptr};
    std::atomic<const Copy*> others_{nullptr};
    /// The value of loaded_objects() (libraries loaded so far) at the last search for copies.
    std::atomic<unsigned long long> searched_{0};
    LoadedLibrarySearch search_;
};

/// Describes the library of a vendor's driver, its functions, and the remedies in the errors.
/// @tparam Functions  a struct of pointers to functions of the driver
template <class Functions>
struct DriverDescription {
    /// File names of the library, tried in this order.
    std::span<const char* const> library_names;
    /// Name of the driver in error texts: "NVIDIA driver".
    const char* name = nullptr;
    /// Remedy in the error text if the library cannot be loaded.
    const char* library_remedy = nullptr;
    /// Remedy in the error text if the library lacks functions.
    const char* version_remedy = nullptr;
    Functions (*look_up)(SymbolLookup&) = nullptr;
};

/// Base class of a class that represents a vendor's driver. Loads the library and looks up its
/// functions, but does not initialise the driver.
/// @tparam Driver     the derived class. It inherits the constructor, or has a constructor with the
///                    same arguments, and has a static function `description()` that returns a
///                    DriverDescription<Functions>
/// @tparam Functions  a struct of pointers to functions of the driver
template <class Driver, class Functions>
class DriverBase {
  public:
    /// Takes the functions that make() has looked up.
    /// @param library  name or path of the library
    /// @param lacking  error ENOSYS if at least one function for export or allocation is missing,
    ///                 otherwise std::nullopt
    DriverBase(std::string library, const Functions& functions, std::optional<ErrorInfo> lacking)
        : library_(std::move(library)), functions_(functions), lacking_(std::move(lacking)) {}

    /// Returns the ProcessDriver that all exporters of this driver share. This function does not
    /// load the library.
    [[nodiscard]] static ProcessDriver<Driver>& of_process() {
        const DriverDescription<Functions> description = Driver::description();
        // The ProcessDriver is never destroyed, because a static object of the program can own a
        // buffer. The destructor of such a buffer calls the driver at the end of the process.
        static auto* const driver = new ProcessDriver<Driver>(
            description.library_names, description.name, description.library_remedy);
        return *driver;
    }
    /// Opens a library with DriverLibrary::open(), and looks up its functions.
    [[nodiscard]] static rdmabuf::Result<Driver> load(std::span<const char* const> names) {
        const DriverDescription<Functions> description = Driver::description();
        const auto opened =
            DriverLibrary::open(names, description.name, description.library_remedy);
        return opened ? make(*opened) : opened.error_info();
    }
    /// Looks up the functions of a library that is loaded.
    /// @return the driver, or ENOSYS if a required function is missing. If functions are missing,
    ///         but only functions for export or allocation, the call succeeds: the missing
    ///         functions are null, and lacking() returns the error
    [[nodiscard]] static rdmabuf::Result<Driver> make(const DriverLibrary& library) {
        const DriverDescription<Functions> description = Driver::description();
        SymbolLookup lookup(library);
        const Functions functions = description.look_up(lookup);
        auto lacking = lookup.error(description.version_remedy);
        if (!lookup.usable()) {
            return *std::move(lacking);
        }
        return Driver(library.name(), functions, std::move(lacking));
    }

    /// Returns the error ENOSYS if at least one function for export or allocation is missing,
    /// otherwise std::nullopt.
    [[nodiscard]] const std::optional<ErrorInfo>& lacking() const noexcept { return lacking_; }
    [[nodiscard]] const Functions& functions() const noexcept { return functions_; }
    /// Returns the name or the path of the library: "libcuda.so.1".
    [[nodiscard]] const std::string& library() const noexcept { return library_; }

  private:
    std::string library_;
    Functions functions_;
    std::optional<ErrorInfo> lacking_;
};

/// The base class of exporters whose driver the process may not have loaded.
/// @tparam Driver  a class whose of_process() returns its ProcessDriver
template <class Driver>
class DriverAllocator : public Allocator {
  public:
    /// Returns std::nullopt without a query if the driver is not loaded. A driver that is not
    /// loaded has no memory in this process.
    [[nodiscard]] std::optional<Allocation> find_overlapping(std::uintptr_t address,
                                                             std::size_t length) const override {
        return Driver::of_process().loaded() != nullptr
                   ? Allocator::find_overlapping(address, length)
                   : std::nullopt;
    }
};

} // namespace rdmabuf::detail

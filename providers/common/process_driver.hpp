// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/driver_library.hpp"

namespace rdmabuf::detail {

/// The driver of one vendor in this process. Its library is loaded at most once and is never
/// unloaded. Thread safe.
/// @tparam Driver  a class derived from DriverBase
template <class Driver>
class ProcessDriver {
  public:
    /// @param names  file names of the library, in the order in which they are tried; not copied
    ProcessDriver(std::span<const char* const> names, std::string_view vendor,
                  std::string_view remedy) noexcept
        : names_(names), vendor_(vendor), remedy_(remedy) {}

    /// Returns the driver if the process has loaded its library, otherwise null: then this process
    /// has no memory of that driver. Loads nothing.
    /// @throws Error ENOSYS for a library that cannot say whose memory an address is
    [[nodiscard]] const Driver* loaded() {
        if (const Driver* const driver = driver_.load(std::memory_order_acquire);
            driver != nullptr) {
            return driver;
        }
        const auto library = search_.find(names_);
        return library ? keep(*library).value() : nullptr;
    }

    /// Loads the library unless the process has loaded it.
    /// @return the driver with all its functions, or why it cannot be used. A later call tries
    ///         again.
    [[nodiscard]] Result<const Driver*> load() {
        const Driver* driver = driver_.load(std::memory_order_acquire);
        if (driver == nullptr) {
            auto opened = DriverLibrary::open(names_, vendor_, remedy_);
            if (!opened) {
                return opened.error_info();
            }
            auto kept = keep(*opened);
            if (!kept) {
                return kept;
            }
            driver = *kept;
        }
        if (const auto& lacking = driver->lacking()) {
            return *lacking;
        }
        return driver;
    }

  private:
    Result<const Driver*> keep(const DriverLibrary& library) {
        const std::lock_guard lock(mutex_);
        if (const Driver* const driver = driver_.load(std::memory_order_relaxed);
            driver != nullptr) {
            return driver;
        }
        auto made = Driver::make(library);
        if (!made) {
            return made.error_info();
        }
        // Never destroyed: buffers of static objects are freed through it.
        const auto* const driver = new Driver(*std::move(made));
        driver_.store(driver, std::memory_order_release);
        return driver;
    }

    std::span<const char* const> names_;
    std::string_view vendor_;
    std::string_view remedy_;
    std::mutex mutex_;
    std::atomic<const Driver*> driver_{nullptr};
    LoadedLibrarySearch search_;
};

/// The library of a vendor's driver, its functions, and the texts of the errors when they cannot be
/// used.
/// @tparam Functions  a struct of pointers to functions of the driver
template <class Functions>
struct DriverDescription {
    /// File names of the library, in the order in which they are tried.
    std::span<const char* const> library_names;
    /// The name of the driver: "NVIDIA driver".
    const char* name = nullptr;
    /// What to do if the library cannot be loaded.
    const char* library_remedy = nullptr;
    /// What to do if the library lacks functions.
    const char* version_remedy = nullptr;
    Functions (*look_up)(SymbolLookup&) = nullptr;
};

/// Base of a vendor's driver: loads its library and looks up its functions. It initialises nothing.
/// @tparam Driver     the derived class. It inherits the constructor, or has one with the same
///                    arguments, and has a static function `description()` that returns a
///                    DriverDescription<Functions>
/// @tparam Functions  a struct of pointers to functions of the driver
template <class Driver, class Functions>
class DriverBase {
  public:
    /// @param library  the file name of the library
    /// @param lacking  why the driver can neither export nor allocate, if it cannot
    DriverBase(std::string library, const Functions& functions, std::optional<ErrorInfo> lacking)
        : library_(std::move(library)), functions_(functions), lacking_(std::move(lacking)) {}

    /// Returns the driver of this process, which is not loaded yet.
    [[nodiscard]] static ProcessDriver<Driver>& of_process() {
        const DriverDescription<Functions> description = Driver::description();
        // Never destroyed: buffers of static objects are freed through it.
        static auto* const driver = new ProcessDriver<Driver>(
            description.library_names, description.name, description.library_remedy);
        return *driver;
    }
    /// Loads the first of @p names that exists, then calls make().
    [[nodiscard]] static rdmabuf::Result<Driver> load(std::span<const char* const> names) {
        const DriverDescription<Functions> description = Driver::description();
        const auto opened =
            DriverLibrary::open(names, description.name, description.library_remedy);
        return opened ? make(*opened) : opened.error_info();
    }
    /// @return the driver, or ENOSYS if the library lacks a required function. A driver that lacks
    ///         only needed functions is returned, with lacking(); those functions are null.
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

    /// Why the driver can neither export nor allocate, if functions for that are missing.
    [[nodiscard]] const std::optional<ErrorInfo>& lacking() const noexcept { return lacking_; }
    [[nodiscard]] const Functions& functions() const noexcept { return functions_; }
    /// The file name of the library: "libcuda.so.1".
    [[nodiscard]] const std::string& library() const noexcept { return library_; }

  private:
    std::string library_;
    Functions functions_;
    std::optional<ErrorInfo> lacking_;
};

} // namespace rdmabuf::detail

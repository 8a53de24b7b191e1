// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>

#include "common/driver_library.hpp"

namespace rdmabuf::detail {

/// The driver of one vendor in this process. Its library is loaded at most once and is never
/// unloaded. Thread safe.
/// @tparam Driver  has a static function `make(library)` that returns Result<Driver>, and a
///                 member `lacking()` that says why it cannot export
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

} // namespace rdmabuf::detail

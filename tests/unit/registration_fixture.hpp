// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rdmabuf/rdmabuf.hpp>

#include "fake_exporter.hpp"
#include "softverbs_fixture.hpp"

namespace rdmabuf::testing {

/// What is registered, unless a test says otherwise: a fake device's memory, all of it.
inline constexpr std::size_t registered_size = 65536;
inline constexpr Access writable_access =
    Access::local_write | Access::remote_write | Access::remote_read;

/// register_memory(), or a function that does the same through another interface.
using RegisterFunction = rdmabuf::Registration(std::span<const ProtectionDomain>, const Resolver&,
                                               std::uintptr_t, std::size_t,
                                               const RegistrationOptions&);

class RegistrationTest : public SoftverbsTest {
  protected:
    RegisterFunction* register_ = register_memory;
    Basics basics_;
    std::shared_ptr<FakeExporter> exporter_ = std::make_shared<FakeExporter>(registered_size);
    Resolver resolver_{{exporter_}};
    /// Dma-bufs begin at a page, so what a fake exporter says is one has to.
    alignas(4096) std::array<std::byte, 16384> host_memory_{};

    static const std::vector<Registration>& registrations() { return record().registrations; }
    [[nodiscard]] std::uintptr_t device_address() const { return exporter_->allocation.base; }
    [[nodiscard]] rdmabuf::Registration device(const RegistrationOptions& options = {}) const {
        return register_({&basics_.pd, 1}, resolver_, device_address(), registered_size, options);
    }
    [[nodiscard]] auto refusal(std::uintptr_t address, std::size_t length,
                               const RegistrationOptions& options = {}) const {
        return error_of([&] {
            static_cast<void>(register_({&basics_.pd, 1}, resolver_, address, length, options));
        });
    }
    [[nodiscard]] auto refusal(const RegistrationOptions& options = {}) const {
        return refusal(device_address(), registered_size, options);
    }
    /// Nothing was asked of verbs or of the exporter's driver beyond whose the memory is.
    void expect_untouched() const {
        EXPECT_TRUE(registrations().empty());
        EXPECT_TRUE(exporter_->exports.empty());
    }
};

} // namespace rdmabuf::testing

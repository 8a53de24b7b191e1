// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/error.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf::testing {

/// The numbers of the descriptors that this process has open.
[[nodiscard]] std::set<int> open_descriptors();
[[nodiscard]] bool closed_on_exec(int fd);
[[nodiscard]] std::size_t page_size();

/// The Error that @p action throws; none when it throws none.
template <class Action>
std::optional<Error> error_of(Action&& action) {
    try {
        std::forward<Action>(action)();
    } catch (const Error& error) {
        return error;
    }
    return std::nullopt;
}

/// The bytes of @p range, read through a mapping of its own descriptor.
/// @param synced  whether DMA_BUF_IOCTL_SYNC has to bracket that
[[nodiscard]] std::vector<std::byte> bytes_through(const ExportedRange& exported,
                                                   bool synced = true);

/// Fills @p bytes with a pattern that differs from place to place and from seed to seed.
void fill(std::span<std::byte> bytes, unsigned seed);

/// Collects what goes to the teardown failure handler for as long as it lives; one at a time.
class TeardownFailures {
  public:
    using Failure = std::pair<std::string, int>;

    TeardownFailures();
    ~TeardownFailures();
    TeardownFailures(const TeardownFailures&) = delete;
    TeardownFailures& operator=(const TeardownFailures&) = delete;

    [[nodiscard]] static std::vector<Failure> seen();

  private:
    TeardownFailureHandler before_;
};

} // namespace rdmabuf::testing

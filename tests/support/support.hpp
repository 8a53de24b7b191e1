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

/// Returns the open file descriptors of this process.
[[nodiscard]] std::set<int> open_descriptors();
[[nodiscard]] bool closed_on_exec(int fd);
[[nodiscard]] std::size_t page_size();

/// Returns the Error that @p action throws; nullopt if it throws none.
template <class Action>
std::optional<Error> error_of(Action&& action) {
    try {
        std::forward<Action>(action)();
    } catch (const Error& error) {
        return error;
    }
    return std::nullopt;
}

/// Returns the bytes of @p exported, read through a mapping of its descriptor.
/// @param synced  true to call DMA_BUF_IOCTL_SYNC before and after reading
[[nodiscard]] std::vector<std::byte> bytes_through(const ExportedRange& exported,
                                                   bool synced = true);

/// Fills @p bytes with a pseudorandom sequence that depends on @p seed.
void fill(std::span<std::byte> bytes, unsigned seed);
/// Returns @p size bytes as fill() writes them.
[[nodiscard]] std::vector<std::byte> pattern(std::size_t size, unsigned seed = 1);

/// Collects the teardown failures while the object exists. There must be one object at a time.
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

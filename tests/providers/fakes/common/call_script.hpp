// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <optional>
#include <string>

namespace fake_driver {

/// Counts the calls of a driver's functions, and says which of them fail, with what.
class CallScript {
  public:
    /// The @p nth call of @p function from now on fails with @p result.
    void fail(const std::string& function, unsigned nth, int result) {
        failures_[function] = {.nth = nth, .result = result};
    }
    /// Counts a call. @return what it has to fail with, without doing anything; none when it may go
    /// on
    std::optional<int> enter(const std::string& function) {
        ++calls_[function];
        const auto planned = failures_.find(function);
        if (planned == failures_.end() || --planned->second.nth != 0) {
            return std::nullopt;
        }
        const int result = planned->second.result;
        failures_.erase(planned);
        return result;
    }
    [[nodiscard]] unsigned calls(const std::string& function) const {
        const auto found = calls_.find(function);
        return found != calls_.end() ? found->second : 0;
    }
    [[nodiscard]] unsigned all_calls() const {
        unsigned sum = 0;
        for (const auto& [function, count] : calls_) {
            sum += count;
        }
        return sum;
    }

  private:
    struct Failure {
        unsigned nth;
        int result;
    };
    std::map<std::string, unsigned> calls_;
    std::map<std::string, Failure> failures_;
};

} // namespace fake_driver

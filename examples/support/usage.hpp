// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>
#include <string>

namespace examples {

/// The command line asks for something that cannot be; what() says what to do about it.
class UsageError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Text to print instead of running.
struct Help {
    std::string text;
};

} // namespace examples

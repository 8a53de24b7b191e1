// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdlib>

#include <gtest/gtest.h>

#include "input.hpp"
#include "softverbs_coverage.hpp"
#include "temporary_directory.hpp"

namespace rdmabuf::testing {

/// Constructs a test, calls its play() with the input, and destroys the test. A failed assertion of
/// GoogleTest ends the process.
template <class Scene>
void play_scene(softverbs::fuzz::Input input) {
    static const bool prepared = [] {
        static const TemporaryDirectory directory;
        ::setenv("SOFTVERBS_DIR", directory.path().c_str(), 1);
        GTEST_FLAG_SET(break_on_failure, true);
        GTEST_FLAG_SET(catch_exceptions, false);
        return true;
    }();
    static_cast<void>(prepared);
    Scene().play(input);
    softverbs_clear_coverage();
}

} // namespace rdmabuf::testing

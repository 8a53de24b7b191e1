// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace softverbs_test {

/// Whether the program is built with ThreadSanitizer.
#if defined(__SANITIZE_THREAD__)
constexpr bool thread_sanitizer = true;
#elif defined(__has_feature)
constexpr bool thread_sanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool thread_sanitizer = false;
#endif

} // namespace softverbs_test

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace softverbs_test {

/// Whether the program is built with AddressSanitizer (and LeakSanitizer, which is part of it), and
/// with ThreadSanitizer.
#if defined(__has_feature)
constexpr bool address_sanitizer = __has_feature(address_sanitizer);
constexpr bool thread_sanitizer = __has_feature(thread_sanitizer);
#else
#if defined(__SANITIZE_ADDRESS__)
constexpr bool address_sanitizer = true;
#else
constexpr bool address_sanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__)
constexpr bool thread_sanitizer = true;
#else
constexpr bool thread_sanitizer = false;
#endif
#endif

} // namespace softverbs_test

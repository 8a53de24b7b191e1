// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <limits.h>

#include <cstring>
#include <string_view>

namespace softverbs {

/// A null-terminated path.
using PathBuffer = char[PATH_MAX];

/// Files below /dev and /sys that softverbs serves instead of the kernel. A row of the table in
/// paths.cpp. Its functions are called without Process::lock, from any thread, and may set errno.
struct ServedPath {
    /// Absolute. The functions below are called for every path that begins with these characters.
    std::string_view prefix;
    /// Writes to @p target the path to use instead of @p path; false: the kernel's file is used.
    /// Null: only open() is served.
    bool (*translate)(std::string_view path, PathBuffer& target);
    /// Opens the file: a descriptor, or -1 and errno. Null: open(2) of the translated path.
    int (*open)(std::string_view path, int flags);
};

/// The result of a lookup in the table.
struct Redirection {
    /// The original path, or the translated path in the caller's buffer.
    const char* path;
    /// Opens the file; null: call open(2) with path instead.
    int (*open)(std::string_view path, int flags);
};

/// Whether a path may have a row in the table. Inline, because every file that the program opens is
/// checked.
[[nodiscard]] inline bool may_be_served(const char* path) noexcept {
    return path != nullptr && path[0] == '/' && (path[1] == 's' || path[1] == 'd') &&
           (std::strncmp(path, "/sys/", 5) == 0 || std::strncmp(path, "/dev/infiniband", 15) == 0);
}

/// Looks a path up in the table. Preserves errno.
[[nodiscard]] Redirection redirect(const char* path, PathBuffer& target);

/// While an object of this class exists, paths of the calling thread are not redirected.
class KernelPaths {
  public:
    KernelPaths() noexcept;
    ~KernelPaths();
    KernelPaths(const KernelPaths&) = delete;
    KernelPaths& operator=(const KernelPaths&) = delete;
};

} // namespace softverbs

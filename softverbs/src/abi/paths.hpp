// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <limits.h>

#include <cstring>
#include <string_view>

namespace softverbs {

/// A null-terminated path.
using PathBuffer = char[PATH_MAX];

/// A row of the table in paths.cpp: files below /dev and /sys that softverbs provides instead of
/// the kernel. The functions of a row are called without Process::lock, from any thread, and may
/// set errno.
struct ServedPath {
    /// Absolute. The functions below are called for every path that begins with these characters.
    std::string_view prefix;
    /// Stores in @p target the path to use instead of @p path. Returns false if the kernel's file
    /// is used. A null pointer means that only open() is redirected.
    bool (*translate)(std::string_view path, PathBuffer& target);
    /// Opens the file. Returns a descriptor, or -1 and sets errno. If the pointer is null, the file
    /// of the translated path is opened.
    int (*open)(std::string_view path, int flags);
};

/// The result of a lookup in the table.
struct Redirection {
    /// The original path, or the translated path in the caller's buffer.
    const char* path;
    /// Opens the file; null: call open(2) with path instead.
    int (*open)(std::string_view path, int flags);
};

/// Whether a path may have a row in the table. The function is inline because every path that the
/// program opens is checked.
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

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <limits.h>

#include <cstring>
#include <string_view>

namespace softverbs {

/// A null-terminated path.
using PathBuffer = char[PATH_MAX];

/// An entry of the table in paths.cpp: a group of files in /dev or /sys that softverbs provides
/// instead of the kernel. Any thread may call translate() and open(), without Process::lock. Both
/// may change errno.
struct ServedPath {
    /// The entry is tried for all absolute paths that begin with this prefix.
    std::string_view prefix;
    /// Stores in @p target the path of the file to open instead of @p path. Returns false if
    /// softverbs does not replace the file @p path.
    bool (*translate)(std::string_view path, PathBuffer& target);
    /// Opens the file; @p path is the path from translate(). Returns a descriptor, or -1 with errno
    /// set. If open is null, the function that the program has called, for example open(2) or
    /// fopen(3), gets the path from translate().
    int (*open)(std::string_view path, int flags);
};

/// The result of redirect(): the file to open instead of the path of the caller.
struct Redirection {
    /// The path to open: the original path, or a translated path in the PathBuffer of the caller.
    const char* path;
    /// Opens the file; see ServedPath::open. If this pointer is null, the caller must call the next
    /// definition of its own function, for example open(2), with the member "path" above.
    int (*open)(std::string_view path, int flags);
};

/// Returns false if softverbs never redirects @p path. If it returns true, redirect() decides. The
/// function is inline, because it is called for every path that the program opens.
[[nodiscard]] inline bool may_be_served(const char* path) noexcept {
    return path != nullptr && path[0] == '/' && (path[1] == 's' || path[1] == 'd') &&
           (std::strncmp(path, "/sys/", 5) == 0 || std::strncmp(path, "/dev/infiniband", 15) == 0);
}

/// Looks up a path in the table of ServedPath entries. Preserves errno.
[[nodiscard]] Redirection redirect(const char* path, PathBuffer& target);

/// While a KernelPaths object exists, paths that the calling thread opens are not redirected.
class KernelPaths {
  public:
    KernelPaths() noexcept;
    ~KernelPaths();
    KernelPaths(const KernelPaths&) = delete;
    KernelPaths& operator=(const KernelPaths&) = delete;
};

} // namespace softverbs

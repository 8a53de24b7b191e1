// SPDX-License-Identifier: BSD-3-Clause
#include "executable.hpp"

#include <elf.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

namespace softverbs::tools {

namespace {

constexpr int not_executable = 126;
constexpr int not_found = 127;

[[noreturn]] void refuse(const std::string& path, int error) {
    throw CannotRun{error == ENOENT || error == ENOTDIR ? not_found : not_executable,
                    path + ": " + std::strerror(error)};
}

/// Returns 0 if the file exists and this process may execute it, and otherwise an errno.
int check(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
        return errno;
    }
    if (S_ISDIR(status.st_mode)) {
        return EISDIR;
    }
    return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

} // namespace

std::string find_executable(const std::string& command) {
    if (command.find('/') != std::string::npos) {
        if (const int error = check(command); error != 0) {
            refuse(command, error);
        }
        return command;
    }
    const char* const variable = std::getenv("PATH");
    std::string_view rest = variable != nullptr ? variable : "/bin:/usr/bin";
    std::string unusable;
    int unusable_error = 0;
    while (true) {
        const std::size_t end = rest.find(':');
        const std::string_view directory = rest.substr(0, end);
        std::string path = std::string(directory.empty() ? "." : directory) + "/" + command;
        const int error = check(path);
        if (error == 0) {
            return path;
        }
        if (error == EACCES && unusable.empty()) {
            unusable = path;
            unusable_error = error;
        }
        if (end == std::string_view::npos) {
            break;
        }
        rest = rest.substr(end + 1);
    }
    if (!unusable.empty()) {
        refuse(unusable, unusable_error);
    }
    throw CannotRun{not_found, command + ": command not found"};
}

void require_preloadable(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
        refuse(path, errno);
    }
    const bool sets_user = (status.st_mode & S_ISUID) != 0 && status.st_uid != ::getuid();
    // S_ISGID sets the group ID only together with S_IXGRP. Without S_IXGRP, it requests mandatory
    // locking.
    const bool sets_group = (status.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
                            status.st_gid != ::getgid();
    const bool has_capabilities =
        ::getuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
    if (!sets_user && !sets_group && !has_capabilities) {
        return;
    }
    const char* const what = sets_user    ? "a set-user-id program"
                             : sets_group ? "a set-group-id program"
                                          : "a program with file capabilities";
    throw CannotRun{not_executable,
                    path + " is " + what +
                        ", into which the loader preloads no library (LD_PRELOAD in ld.so(8)): it "
                        "would run without softverbs. Run a copy of it without that mode."};
}

bool is_static(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    ElfW(Ehdr) header{};
    file.read(reinterpret_cast<char*>(&header), sizeof header);
    if (!file || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_phentsize != sizeof(ElfW(Phdr))) {
        return false; // a script, or a program for another architecture
    }
    file.seekg(static_cast<std::streamoff>(header.e_phoff));
    for (unsigned i = 0; i < header.e_phnum; ++i) {
        ElfW(Phdr) segment{};
        file.read(reinterpret_cast<char*>(&segment), sizeof segment);
        if (!file || segment.p_type == PT_INTERP) {
            return false;
        }
    }
    return true;
}

} // namespace softverbs::tools

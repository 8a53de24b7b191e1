// SPDX-License-Identifier: BSD-3-Clause

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "abi/sysfs_tree.hpp"
#include "cm/routes.hpp"
#include "fabric/rendezvous.hpp"
#include "objects/process.hpp"

// softverbs writes the sysfs files of its devices to a directory tree, and redirects programs to
// this tree. A tree is never modified. Its name is a hash of its contents. When a file must change,
// for example because a port goes down, the next access creates a new tree. All processes with the
// same devices share a tree.

namespace softverbs::sysfs {

namespace {

/// The sysfs directories that list devices of softverbs and of the kernel. In the generated tree,
/// symbolic links represent the kernel's devices.
constexpr std::string_view shared_directories[] = {
    "/sys/class/infiniband",
    "/sys/class/infiniband_verbs",
    "/sys/bus/pci/devices",
    "/sys/class/pci_bus",
};

void add_kernel_devices(Tree& tree) {
    for (const std::string_view directory : shared_directories) {
        std::error_code error;
        for (std::filesystem::directory_iterator entry(directory, error), end;
             !error && entry != end; entry.increment(error)) {
            const std::string path = entry->path();
            if (!tree.files.contains(path)) {
                tree.links.emplace(path, path);
            }
        }
    }
}

std::string hash_of(const Tree& tree) {
    std::uint64_t hash = 0xcbf29ce484222325; // FNV-1a
    const auto add = [&hash](const std::string& text) {
        for (const char byte : text + '\n') {
            hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
        }
    };
    for (const auto* const entries : {&tree.files, &tree.links}) {
        for (const auto& [path, content] : *entries) {
            add(path);
            add(content);
        }
    }
    std::array<char, 17> text{};
    std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash));
    return text.data();
}

void write(const Tree& tree, const std::string& root) {
    for (const auto& [path, content] : tree.files) {
        const std::filesystem::path file = root + path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file, std::ios::binary) << content;
    }
    for (const auto& [path, target] : tree.links) {
        const std::filesystem::path link = root + path;
        std::filesystem::create_directories(link.parent_path());
        std::filesystem::create_symlink(target, link);
    }
}

/// Removes the trees that processes had begun to write when they were killed.
void remove_abandoned(const std::filesystem::path& parent) {
    constexpr std::chrono::minutes longest(1); // to write a tree takes milliseconds
    const auto before = std::filesystem::file_time_type::clock::now() - longest;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end;
         entry.increment(error)) {
        std::error_code ignored;
        if (entry->path().filename().string().starts_with("new-") &&
            std::filesystem::last_write_time(entry->path(), ignored) < before) {
            std::filesystem::remove_all(entry->path(), ignored);
        }
    }
}

/// The root directory of the generated tree that was used last. restore() reads the string without
/// a lock, so the string is never freed.
std::atomic<const std::string*> current_root{nullptr};

/// Returns the root directory of the generated sysfs tree with these contents. Writes the files if
/// the tree does not exist. Throws std::filesystem::filesystem_error or std::system_error.
const std::string& root_of(const Tree& tree) {
    const std::string name = hash_of(tree);
    const std::string* const known = current_root.load();
    if (known != nullptr && known->ends_with(name) && std::filesystem::exists(*known)) {
        return *known;
    }
    const std::string place = fabric::default_directory();
    const fabric::Rendezvous checked(place);
    const std::filesystem::path parent = std::filesystem::canonical(place) / "sysfs";
    const std::filesystem::path root = parent / name;
    if (!std::filesystem::exists(root)) {
        remove_abandoned(parent);
        // Write the tree under a name that contains the thread ID, and then rename it: several
        // threads may write the same tree at the same time.
        const std::filesystem::path made =
            parent / ("new-" + std::to_string(::gettid()) + "-" + name);
        std::filesystem::remove_all(made);
        write(tree, made);
        std::error_code error;
        std::filesystem::rename(made, root, error);
        if (error) { // another process has created the same tree
            std::filesystem::remove_all(made);
        }
    }
    const Guard guard; // fork(2) waits for this lock, so a child process can use the set
    static auto& roots = *new std::set<std::string>;
    const std::string& kept = *roots.insert(root).first;
    current_root.store(&kept);
    return kept;
}

/// Returns whether a path in /sys is in the generated tree. If not, programs read the file of the
/// kernel.
bool is_in(const Tree& tree, std::string_view path) {
    if (path.starts_with(pci_root)) {
        return true;
    }
    for (const std::string_view directory : shared_directories) {
        if (!path.starts_with(directory)) {
            continue;
        }
        const std::string_view rest = path.substr(directory.size());
        if (rest.empty() || rest == "/") {
            return true;
        }
        if (rest.front() == '/') {
            const std::string entry(path.substr(0, path.find('/', directory.size() + 1)));
            return tree.links.contains(entry) || tree.files.contains(entry);
        }
    }
    return false;
}

} // namespace

bool translate(std::string_view path, PathBuffer& target) {
    try {
        Tree tree;
        const std::vector<std::string> interfaces = cm::local_interfaces();
        {
            const Guard guard;
            const auto& devices = process().devices;
            for (const auto& device : devices) {
                describe(tree, *device);
            }
            // Link network interface i to device i modulo the number of devices. cm::find_device()
            // uses the same rule.
            for (std::size_t i = 0; i < interfaces.size() && !devices.empty(); ++i) {
                add_network_interface(tree, *devices[i % devices.size()], interfaces[i]);
            }
        }
        if (tree.files.empty() || !is_in(tree, path)) {
            return false;
        }
        add_kernel_devices(tree);
        const std::string& root = root_of(tree);
        if (root.size() + path.size() >= sizeof target) {
            return false;
        }
        std::memcpy(target, root.data(), root.size());
        std::memcpy(target + root.size(), path.data(), path.size());
        target[root.size() + path.size()] = '\0';
        return true;
    } catch (const std::exception&) {
        return false; // without memory or a writable directory, the kernel's file is used
    }
}

void restore(char* path) noexcept {
    const std::string* const root = current_root.load();
    const std::size_t length = std::strlen(path);
    if (root != nullptr && length > root->size() &&
        std::memcmp(path, root->data(), root->size()) == 0 && path[root->size()] == '/') {
        std::memmove(path, path + root->size(), length - root->size() + 1);
    }
}

} // namespace softverbs::sysfs

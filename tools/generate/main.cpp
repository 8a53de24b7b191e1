// SPDX-License-Identifier: BSD-3-Clause
//
// Writes the man pages and the completion scripts of `rdmabuf`, when the command is built.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "model.hpp"

namespace {

using namespace rdmabuf::tools::generate;

void write(const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (!file) {
        throw std::runtime_error(path.string() + " cannot be written");
    }
}

void write_all(const std::filesystem::path& directory) {
    const ProgramModel model = read_model();
    // Removes the page of a subcommand that no longer exists.
    std::filesystem::remove_all(directory);
    const auto write_page = [&](const CommandModel& command) {
        write(directory / "man1" / (page_name(model, command) + ".1"), man_page(model, command));
    };
    write_page(model.program);
    for (const CommandModel& command : model.subcommands) {
        write_page(command);
    }
    write(directory / "bash" / "rdmabuf", bash_completion(model));
    write(directory / "zsh" / "_rdmabuf", zsh_completion(model));
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fputs("usage: rdmabuf_generate DIRECTORY\n", stderr);
        return 2;
    }
    try {
        write_all(argv[1]);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "rdmabuf_generate: %s\n", error.what());
        return 1;
    }
}

// SPDX-License-Identifier: BSD-3-Clause
//
// Writes the directories of a recorded machine, and prints the exit status that its description
// demands of `rdmabuf doctor`.
#include <exception>
#include <filesystem>
#include <iostream>

#include "recorded_machine.hpp"

int main(int argc, char** argv) {
    if (argc != 3) {
        std::cerr << "usage: write_machine DESCRIPTION DIRECTORY\n";
        return 2;
    }
    try {
        const rdmabuf::testing::RecordedMachine machine(argv[1]);
        using std::filesystem::copy_options;
        std::filesystem::copy(machine.root(), argv[2],
                              copy_options::recursive | copy_options::copy_symlinks);
        std::cout << machine.exit_status() << '\n';
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}

// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>
#include <exception>

#include "program.hpp"

int main(int argc, char** argv) {
    try {
        rdmabuf::tools::Program program;
        return program.run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "rdmabuf: %s\n", error.what());
        return rdmabuf::tools::exit_failure;
    }
}

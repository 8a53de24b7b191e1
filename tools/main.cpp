// SPDX-License-Identifier: BSD-3-Clause
#include "command.hpp"

int main(int argc, char** argv) {
    return rdmabuf::tools::run_program(argc, argv);
}

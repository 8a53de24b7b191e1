// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>
#include <cstdlib>
#include <string>

#include <rdmabuf/rdmabuf.hpp>

int main() {
    const std::string of_the_headers = std::to_string(RDMABUF_VERSION_MAJOR) + "." +
                                       std::to_string(RDMABUF_VERSION_MINOR) + "." +
                                       std::to_string(RDMABUF_VERSION_PATCH);
    if (rdmabuf::version() != of_the_headers) {
        std::fprintf(stderr, "headers of %s, library of %s\n", of_the_headers.c_str(),
                     std::string(rdmabuf::version()).c_str());
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

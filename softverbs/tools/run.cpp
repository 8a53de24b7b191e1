// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>

#include "environment.hpp"
#include "executable.hpp"
#include "subcommands.hpp"

namespace softverbs::tools {

int run(const std::vector<std::string>& command) {
    try {
        const std::string path = find_executable(command.front());
        require_preloadable(path);
        if (is_static(path)) {
            std::cerr << "softverbs: warning: " << path
                      << " is linked statically and does not use softverbs; the programs that it "
                         "starts do\n";
        }
        set_loader_environment(find_installation());
        std::vector<char*> arguments;
        arguments.reserve(command.size() + 1);
        for (const std::string& argument : command) {
            arguments.push_back(const_cast<char*>(argument.c_str()));
        }
        arguments.push_back(nullptr);
        // Use execvp(3), because it also executes scripts without a "#!" line, with /bin/sh, as a
        // shell does.
        ::execvp(path.c_str(), arguments.data());
        const int error = errno;
        std::cerr << "softverbs: " << path << ": " << std::strerror(error) << "\n";
        return error == ENOENT ? 127 : 126;
    } catch (const CannotRun& error) {
        std::cerr << "softverbs: " << error.reason << "\n";
        return error.exit_status;
    }
}

} // namespace softverbs::tools

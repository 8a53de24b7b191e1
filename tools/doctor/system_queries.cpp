// SPDX-License-Identifier: BSD-3-Clause
#include "system_queries.hpp"

#include <dlfcn.h>

#include <rdmabuf/resolver.hpp>

namespace rdmabuf::tools::doctor {

bool has_function(const char* name, const char* version) {
    return ::dlvsym(RTLD_DEFAULT, name, version) != nullptr;
}

Availability query_exporter(const std::string& exporter) {
    return Resolver::system().exporter(exporter)->availability();
}

} // namespace rdmabuf::tools::doctor

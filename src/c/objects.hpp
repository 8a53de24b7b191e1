// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <rdmabuf/providers/external.hpp>
#include <rdmabuf/rdmabuf.h>
#include <rdmabuf/registration.hpp>
#include <rdmabuf/registration_cache.hpp>
#include <rdmabuf/resolver.hpp>

// The definitions of the opaque structs to which the handles of the C interface point.

struct rdmabuf_resolver {
    // A shared pointer, because a cache copies `resolver`, and the copies share this exporter.
    std::shared_ptr<rdmabuf::ExternalExporter> external = rdmabuf::make_external_exporter();
    rdmabuf::Resolver resolver;
};
struct rdmabuf_external {
    rdmabuf::AddedRange range;
};
struct rdmabuf_region {
    rdmabuf::Registration registration;
    std::string trail;
    std::string trail_json;
};
struct rdmabuf_cache {
    rdmabuf::RegistrationCache cache;
    std::size_t domains;
};
struct rdmabuf_lease {
    rdmabuf::RegistrationCache::Lease lease;
    std::size_t domains;
};

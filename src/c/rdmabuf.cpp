// SPDX-License-Identifier: BSD-3-Clause
//
// The C interface. Each function converts its arguments, calls the C++ interface, and converts an
// exception to a negative errno value. pthread_cancel(3) has no effect until the function returns:
// cancellation unwinds the stack with the libgcc_s of the program, and libgcc_s cannot unwind the
// frames of this library, which has its own copy of libgcc.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rdmabuf/detail/config.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/providers/external.hpp>
#include <rdmabuf/rdmabuf.h>
#include <rdmabuf/registration.hpp>
#include <rdmabuf/registration_cache.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/topology.hpp>
#include <rdmabuf/version.hpp>
#if RDMABUF_HAVE_PROVIDER_CUDA
#include <rdmabuf/providers/cuda.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_LEVEL_ZERO
#include <rdmabuf/providers/level_zero.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_ROCM
#include <rdmabuf/providers/rocm.hpp>
#endif

#include "base/cancellation.hpp"
#include "c/objects.hpp"

using namespace rdmabuf;

namespace __gnu_cxx { // NOLINT(cert-dcl58-cpp, bugprone-reserved-identifier)
/// Frees the pool from which libstdc++ allocates exceptions when memory is exhausted.
// NOLINTNEXTLINE(bugprone-reserved-identifier, readability-identifier-naming)
[[gnu::weak]] void __freeres();
} // namespace __gnu_cxx

namespace {

/// Called by dlclose(3) and at the end of the process. Frees the exception pool of the copy of
/// libstdc++ in this library.
[[gnu::destructor]] void unload() {
    if (__gnu_cxx::__freeres != nullptr) {
        __gnu_cxx::__freeres();
    }
}

/// The text of rdmabuf_last_error(). An array needs no destructor. An object with a destructor
/// would keep this library loaded after dlclose(3), until all threads that have used the object
/// have ended.
thread_local std::array<char, 4096> last_error;

/// Copies as much of @p text as fits into @p to, and appends a zero. @p to must not be empty.
void copy_text(std::span<char> to, std::string_view text) noexcept {
    const std::size_t length = std::min(text.size(), to.size() - 1);
    std::copy_n(text.begin(), length, to.begin());
    to[length] = '\0';
}

int fail(int error, std::string_view text) noexcept {
    copy_text(last_error, text);
    return -error;
}

/// Returns true if @p call names a function or a class of the C++ interface, and false if it names
/// a function of verbs, the operating system or a driver.
bool is_cpp(std::string_view call) noexcept {
    constexpr std::array<std::string_view, 5> names{"PathOrder", "RegistrationCache", "add",
                                                    "export_range", "register_memory"};
    return call.find("::") != std::string_view::npos ||
           std::ranges::find(names, call) != names.end();
}

/// Returns the result of @p call, which must not be negative. For an exception, returns the
/// negative errno value of the Error, or -ENOMEM for std::bad_alloc, or -EIO. In the error text,
/// the C function @p function replaces a name of the C++ interface.
template <class Call>
int guarded(const char* function, const Call& call) {
    const detail::CancellationDisabled uncancelled;
    try {
        return call();
    } catch (const Error& error) {
        const std::string_view text = error.what();
        if (!is_cpp(error.function())) {
            return fail(error.error(), text);
        }
        fail(error.error(), function);
        const std::size_t length = std::strlen(last_error.data());
        copy_text(std::span(last_error).subspan(length),
                  text.substr(std::strlen(error.function())));
        return -error.error();
    } catch (const std::bad_alloc&) {
        fail(ENOMEM, function);
        copy_text(std::span(last_error).subspan(std::strlen(function)), ": no memory (ENOMEM)");
        return -ENOMEM;
    } catch (const std::exception& error) {
        return fail(EIO, error.what());
    }
}

/// Returns a copy of a struct of the program, which may have been compiled with an older or a newer
/// header. Members that the struct of the program lacks are zero. If @p given is null, all members
/// are zero.
/// @throws Error EINVAL if the member `size` is invalid, or if a member that this library does not
///         know is not zero
template <class Struct>
Struct known_part(const Struct* given, const char* function) {
    Struct known{};
    if (given == nullptr) {
        return known;
    }
    const auto* const bytes = reinterpret_cast<const std::byte*>(given);
    if (given->size < sizeof(std::size_t) || given->size > 4096) {
        throw Error(EINVAL, function,
                    "the member size is not that of the struct: use RDMABUF_INIT");
    }
    const std::size_t size = std::min(given->size, sizeof known);
    if (std::any_of(bytes + size, bytes + given->size,
                    [](std::byte each) { return each != std::byte{0}; })) {
        throw Error(
            EINVAL, function,
            "an option is not known to this version of librdmabuf_c: update the library, or "
            "set the option to 0");
    }
    std::memcpy(&known, given, size);
    return known;
}

/// Copies @p result to the struct of the program at @p to. The struct is larger than `Struct` if
/// the program was compiled with a newer header. It is never smaller, because no header has
/// declared fewer members so far. Whoever adds members to `Struct` must change the check of
/// to->size below, so that it still accepts the size without them.
/// @throws Error EINVAL for a null pointer or a wrong size
template <class Struct>
void give(Struct result, Struct* to, const char* function) {
    if (to == nullptr || to->size < sizeof(Struct)) {
        throw Error(EINVAL, function,
                    "a null pointer, or a struct whose member size is not set: use RDMABUF_INIT");
    }
    result.size = to->size;
    std::memcpy(to, &result, std::min(to->size, sizeof result));
}

/// @throws Error EINVAL if one of the pointers is null
void require(const char* function, std::initializer_list<const void*> pointers) {
    if (std::ranges::find(pointers, nullptr) != pointers.end()) {
        throw Error(EINVAL, function, "a null pointer");
    }
}

/// Destroys the object of a handle, and then sets the handle to null. This order is required: when
/// the handle is null, another thread of the Python module frees memory that the object uses.
template <class Object>
void end(Object** handle) noexcept {
    const detail::CancellationDisabled uncancelled;
    if (handle != nullptr) {
        delete *handle;
        *handle = nullptr;
    }
}

std::vector<ProtectionDomain> borrow(ibv_pd* const* pds, std::size_t count, const char* function) {
    std::vector<ProtectionDomain> domains;
    for (ibv_pd* const pd : std::span(pds, count)) {
        if (pd == nullptr) {
            throw Error(EINVAL, function, "a protection domain is a null pointer");
        }
        domains.push_back(ProtectionDomain::borrow(pd));
    }
    return domains;
}

constexpr std::array all_paths{
    std::pair(RDMABUF_PATH_DMABUF, RegistrationPath::dmabuf),
    std::pair(RDMABUF_PATH_DMABUF_DATA_DIRECT, RegistrationPath::dmabuf_data_direct),
    std::pair(RDMABUF_PATH_PEERMEM, RegistrationPath::peermem),
    std::pair(RDMABUF_PATH_HOST, RegistrationPath::host),
    std::pair(RDMABUF_PATH_ON_DEMAND, RegistrationPath::on_demand)};

PathOrder paths_of(int bits, const char* function) {
    std::vector<RegistrationPath> paths;
    for (const auto& [bit, path] : all_paths) {
        if ((bits & bit) != 0) {
            paths.push_back(path);
            bits &= ~bit;
        }
    }
    if (bits != 0) {
        throw Error(EINVAL, function, "unknown bits in paths");
    }
    return PathOrder(paths);
}

std::optional<MappingKind> mapping_of(int mapping, const char* function) {
    switch (mapping) {
        case RDMABUF_MAPPING_DEFAULT:
            return std::nullopt;
        case RDMABUF_MAPPING_STANDARD:
            return MappingKind::standard;
        case RDMABUF_MAPPING_PCIE:
            return MappingKind::pcie;
        default:
            throw Error(EINVAL, function, "mapping is none of RDMABUF_MAPPING_...");
    }
}
int number_of(MappingKind mapping) {
    return mapping == MappingKind::pcie ? RDMABUF_MAPPING_PCIE : RDMABUF_MAPPING_STANDARD;
}

RegistrationOptions options_of(const rdmabuf_options* given, const char* function) {
    const rdmabuf_options options = known_part(given, function);
    RegistrationOptions result;
    if (options.access != 0) {
        result.access = static_cast<Access>(options.access);
    }
    result.relaxed_ordering = options.relaxed_ordering != 0;
    result.device_memory = options.device_memory != 0;
    result.paths = paths_of(options.paths, function);
    result.mapping = mapping_of(options.mapping, function);
    if (options.has_iova != 0) {
        result.iova = options.iova;
    }
    return result;
}

/// Returns @p text as a JSON string. Control characters become blanks.
std::string json_string(std::string_view text) {
    std::string json = "\"";
    for (const char each : text) {
        if (each == '"' || each == '\\') {
            json += '\\';
        }
        json += static_cast<unsigned char>(each) < ' ' ? ' ' : each;
    }
    return json + "\"";
}

std::string json_of(const Trail& trail) {
    std::string json = "[";
    for (const Attempt& attempt : trail) {
        json += (json.size() > 1 ? ", " : "") + std::string("{\"path\": ") +
                json_string(to_string(attempt.path)) + ", \"call\": " + json_string(attempt.call) +
                ", \"errno\": " + std::to_string(attempt.error) +
                ", \"device\": " + json_string(attempt.device) +
                ", \"exporter\": " + json_string(attempt.exporter) +
                ", \"meaning\": " + json_string(attempt.meaning) +
                ", \"remedy\": " + json_string(attempt.remedy) + "}";
    }
    return json + "]";
}

std::uintptr_t number(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address);
}

void give_keys(const RegistrationCache::Lease& lease, std::size_t i, rdmabuf_keys* keys,
               const char* function) {
    give({.size = 0,
          .lkey = lease.lkey(i),
          .rkey = lease.rkey(i),
          .address = lease.address(),
          .length = lease.length()},
         keys, function);
}

int register_with(const char* function, rdmabuf_resolver* resolver, ibv_pd* const* pds,
                  std::size_t count, const void* address, std::size_t length,
                  const rdmabuf_options* options, rdmabuf_region** region) {
    return guarded(function, [&] {
        require(function, {resolver, pds, region});
        auto made = std::make_unique<rdmabuf_region>(rdmabuf_region{
            .registration = register_memory(borrow(pds, count, function), resolver->resolver,
                                            number(address), length, options_of(options, function)),
            .trail = {},
            .trail_json = {}});
        made->trail = to_string(made->registration.trail());
        made->trail_json = json_of(made->registration.trail());
        *region = made.release();
        return 0;
    });
}

struct Explanation {
    const char* call;
    int error;
    const char* text;
};
// These texts must agree with docs/registration.md and with the documentation of
// DmaBufMR::DmaBufMR().
constexpr std::array explanations{
    Explanation{"ibv_reg_dmabuf_mr", EBADF, "the descriptor is not open, or has O_PATH"},
    Explanation{"ibv_reg_dmabuf_mr", EACCES,
                "the descriptor is open for reading only, and the access flags have local write; "
                "or it is open for writing only"},
    Explanation{"ibv_reg_dmabuf_mr", EOPNOTSUPP,
                "the driver of the NIC cannot import dma-bufs, or not with these access flags"},
    Explanation{"ibv_reg_dmabuf_mr", EPROTONOSUPPORT,
                "the kernel is older than 5.12 and has no dma-bufs in ib_uverbs"},
    Explanation{"ibv_reg_dmabuf_mr", EINVAL,
                "the descriptor is not that of a dma-buf, the range is not inside the dma-buf, or "
                "offset and iova differ modulo the page size"},
    Explanation{"ibv_reg_dmabuf_mr", ENODEV, "the buffer was revoked, or its device was removed"},
    Explanation{"ibv_reg_dmabuf_mr", ENOMEM,
                "the NIC or the IOMMU has no more translations, or the BAR of the GPU is used up"},
    Explanation{"ibv_reg_dmabuf_mr", EPERM,
                "the exporter permits no further attachment, or no peer-to-peer DMA"},
    Explanation{"ibv_reg_dmabuf_mr", kernel_enotsupp,
                "importer or exporter cannot do peer-to-peer DMA between these two devices"},
    Explanation{"ibv_reg_mr", EFAULT,
                "the address is not mapped, or it is memory of a device and no kernel module for "
                "peer memory (nvidia_peermem) is loaded: export it as a dma-buf"},
    Explanation{"ibv_reg_mr", ENOMEM,
                "the limit of locked memory (ulimit -l) is too small, or the NIC has no more "
                "translations"},
    Explanation{"ibv_reg_mr", EINVAL,
                "the access flags contradict each other, or the range has no bytes or overflows"},
};

} // namespace

extern "C" {

const char* rdmabuf_version() {
    return version().data();
}

const char* rdmabuf_last_error() {
    return last_error.data();
}

size_t rdmabuf_explain(int error, const char* call, char* text, size_t size) {
    const int positive = error < 0 ? -std::max(error, -INT_MAX) : error;
    std::string all;
    try {
        all = describe_errno(positive);
        for (const Explanation& each : explanations) {
            if (each.error == positive && call != nullptr && std::string_view(call) == each.call) {
                all.append(": ").append(each.text);
            }
        }
    } catch (const std::bad_alloc&) {
        all.clear();
    }
    if (text != nullptr && size > 0) {
        copy_text({text, size}, all);
    }
    return all.size();
}

int rdmabuf_resolver_create(rdmabuf_resolver** resolver) {
    constexpr const char* function = "rdmabuf_resolver_create";
    return guarded(function, [&] {
        require(function, {resolver});
        auto made = std::make_unique<rdmabuf_resolver>();
        made->resolver.add(made->external);
        // Besides `external`, the resolver of a C program gets only these exporters. All other
        // exporters find only memory that they have allocated themselves, or that a C++ program has
        // added to them.
#if RDMABUF_HAVE_PROVIDER_CUDA
        made->resolver.add(make_cuda_exporter());
#endif
#if RDMABUF_HAVE_PROVIDER_LEVEL_ZERO
        made->resolver.add(make_level_zero_exporter());
#endif
#if RDMABUF_HAVE_PROVIDER_ROCM
        made->resolver.add(make_rocm_exporter());
#endif
        *resolver = made.release();
        return 0;
    });
}

void rdmabuf_resolver_destroy(rdmabuf_resolver** resolver) {
    end(resolver);
}

int rdmabuf_external_add(rdmabuf_resolver* resolver, const rdmabuf_external_memory* memory,
                         rdmabuf_external** external) {
    constexpr const char* function = "rdmabuf_external_add";
    return guarded(function, [&] {
        require(function, {resolver, memory, external});
        const auto given = known_part(memory, function);
        *external = new rdmabuf_external{resolver->external->add(
            given.fd,
            {.address = given.address,
             .length = given.length,
             .offset = given.offset,
             .pci_address = given.pci_address != nullptr ? given.pci_address : "",
             .mapping = mapping_of(given.mapping, function).value_or(MappingKind::standard)})};
        return 0;
    });
}

void rdmabuf_external_remove(rdmabuf_external** external) {
    end(external);
}

int rdmabuf_find(rdmabuf_resolver* resolver, const void* address, rdmabuf_allocation* allocation) {
    constexpr const char* function = "rdmabuf_find";
    return guarded(function, [&] {
        require(function, {resolver, allocation});
        rdmabuf_allocation result{};
        if (const auto match = resolver->resolver.try_find(number(address))) {
            const Allocation& found = match->allocation;
            result.base = found.base;
            result.length = found.length;
            result.generation = found.generation;
            result.kind = static_cast<int>(found.kind) + 1; // 0 is RDMABUF_KIND_HOST.
            result.c2c = found.c2c ? 1 : 0;
            copy_text(result.exporter, match->exporter->name());
            copy_text(result.pci_address, found.pci_address);
        }
        give(result, allocation, function);
        return 0;
    });
}

int rdmabuf_export_range(rdmabuf_resolver* resolver, const void* address, size_t length,
                         int mapping, rdmabuf_export* range) {
    constexpr const char* function = "rdmabuf_export_range";
    return guarded(function, [&] {
        require(function, {resolver, range});
        if (length == 0 || length > UINTPTR_MAX - number(address)) {
            throw Error(EINVAL, function, "a length of 0, or a range behind the address space");
        }
        const ExportedRange exported = resolver->resolver.export_range(
            number(address), length, mapping_of(mapping, function).value_or(MappingKind::standard));
        // The program gets a duplicate of the descriptor, which it closes with close(2). Some
        // exporters release the descriptor itself in another way.
        UniqueFd descriptor(::fcntl(exported.fd(), F_DUPFD_CLOEXEC, 0));
        if (!descriptor) {
            throw Error(errno, "fcntl", "F_DUPFD_CLOEXEC of the dma-buf");
        }
        give({.size = 0,
              .fd = descriptor.get(),
              .mapping = number_of(exported.mapping()),
              .offset = exported.offset(),
              .length = exported.length()},
             range, function);
        static_cast<void>(descriptor.release());
        return 0;
    });
}

int rdmabuf_register_many(rdmabuf_resolver* resolver, ibv_pd* const* pds, size_t count,
                          const void* address, size_t length, const rdmabuf_options* options,
                          rdmabuf_region** region) {
    return register_with("rdmabuf_register_many", resolver, pds, count, address, length, options,
                         region);
}

int rdmabuf_register(rdmabuf_resolver* resolver, ibv_pd* pd, const void* address, size_t length,
                     const rdmabuf_options* options, rdmabuf_region** region) {
    return register_with("rdmabuf_register", resolver, &pd, 1, address, length, options, region);
}

ibv_mr* rdmabuf_mr(const rdmabuf_region* region, size_t i) {
    return region != nullptr && i < region->registration.size() ? region->registration.native(i)
                                                                : nullptr;
}

uint64_t rdmabuf_iova(const rdmabuf_region* region) {
    return region != nullptr ? region->registration.iova() : 0;
}

int rdmabuf_path(const rdmabuf_region* region, size_t i) {
    if (rdmabuf_mr(region, i) == nullptr) {
        return 0;
    }
    const auto* const found = std::ranges::find(all_paths, region->registration.path(i),
                                                [](const auto& each) { return each.second; });
    return found->first;
}

const char* rdmabuf_trail(const rdmabuf_region* region) {
    return region != nullptr ? region->trail.c_str() : "";
}

const char* rdmabuf_trail_json(const rdmabuf_region* region) {
    return region != nullptr ? region->trail_json.c_str() : "[]";
}

int rdmabuf_verify(rdmabuf_region* region) {
    constexpr const char* function = "rdmabuf_verify";
    return guarded(function, [&] {
        require(function, {region});
        try {
            if (region->registration.verify() == RegistrationState::registered) {
                return 0;
            }
        } catch (const Error& error) {
            if (error.error() != ENODEV) {
                throw;
            }
            throw Error(
                EIO, function,
                "the driver could not be asked about the memory: " + std::string(error.what()));
        }
        throw Error(
            ENODEV, function,
            "the memory was freed or replaced since it was registered: do not use its keys, "
            "and deregister it");
    });
}

int rdmabuf_deregister(rdmabuf_region** region) {
    return guarded("rdmabuf_deregister", [&] {
        if (region != nullptr && *region != nullptr) {
            try {
                (*region)->registration.close();
            } catch (const Error& error) {
                if (error.error() == EBUSY) {
                    throw Error(EBUSY, error.function(),
                                "a memory window is bound to the region: deallocate it first");
                }
                throw;
            }
            end(region);
        }
        return 0;
    });
}

int rdmabuf_cache_create(rdmabuf_resolver* resolver, ibv_pd* const* pds, size_t count,
                         const rdmabuf_cache_options* options, rdmabuf_cache** cache) {
    constexpr const char* function = "rdmabuf_cache_create";
    return guarded(function, [&] {
        require(function, {resolver, pds, cache});
        const auto given = known_part(options, function);
        if (given.reserved != 0) {
            throw Error(EINVAL, function, "the member reserved is not 0: use RDMABUF_INIT");
        }
        RegistrationCacheOptions made{.registration = options_of(given.registration, function)};
        made.policy =
            given.checked != 0 ? CachePolicy::checked : CachePolicy::explicit_invalidation;
        made.registration.iova.reset();
        if (given.max_regions != 0) {
            made.max_entries = given.max_regions;
        }
        if (given.max_bytes != 0) {
            made.max_bytes = given.max_bytes;
        }
        *cache = new rdmabuf_cache{
            .cache = RegistrationCache(borrow(pds, count, function), resolver->resolver, made),
            .domains = count};
        return 0;
    });
}

void rdmabuf_cache_destroy(rdmabuf_cache** cache) {
    // Set the handle to null before the destruction: the destruction may unmap memory, and a hook
    // of munmap(2) that then invalidates a range must find a null handle.
    rdmabuf_cache* taken = cache != nullptr ? std::exchange(*cache, nullptr) : nullptr;
    end(&taken);
}

int rdmabuf_cache_acquire(rdmabuf_cache* cache, const void* address, size_t length, int access,
                          rdmabuf_keys* keys, rdmabuf_lease** lease) {
    constexpr const char* function = "rdmabuf_cache_acquire";
    return guarded(function, [&] {
        require(function, {cache, lease});
        auto made = std::make_unique<rdmabuf_lease>(rdmabuf_lease{
            .lease = cache->cache.acquire(number(address), length, static_cast<Access>(access)),
            .domains = cache->domains});
        if (keys != nullptr) {
            give_keys(made->lease, 0, keys, function);
        }
        *lease = made.release();
        return 0;
    });
}

int rdmabuf_lease_keys(const rdmabuf_lease* lease, size_t i, rdmabuf_keys* keys) {
    constexpr const char* function = "rdmabuf_lease_keys";
    return guarded(function, [&] {
        if (lease == nullptr || i >= lease->domains) {
            throw Error(EINVAL, function, "a null pointer, or no such protection domain");
        }
        give_keys(lease->lease, i, keys, function);
        return 0;
    });
}

void rdmabuf_lease_release(rdmabuf_lease** lease) {
    end(lease);
}

void rdmabuf_cache_invalidate(rdmabuf_cache* cache, const void* address, size_t length) {
    const detail::CancellationDisabled uncancelled;
    if (cache != nullptr) {
        cache->cache.invalidate(number(address), length);
    }
}

int rdmabuf_cache_statistics(const rdmabuf_cache* cache, rdmabuf_statistics* statistics) {
    constexpr const char* function = "rdmabuf_cache_statistics";
    return guarded(function, [&] {
        require(function, {cache});
        const RegistrationCache::Statistics now = cache->cache.statistics();
        give({.size = 0,
              .hits = now.hits,
              .misses = now.misses,
              .evictions = now.evictions,
              .stale = now.stale,
              .invalidations = now.invalidations,
              .regions = now.entries,
              .bytes = now.bytes},
             statistics, function);
        return 0;
    });
}

int rdmabuf_supports_dmabuf(ibv_pd* pd) {
    constexpr const char* function = "rdmabuf_supports_dmabuf";
    return guarded(function, [&] {
        require(function, {pd});
        const Availability import = ProtectionDomain::borrow(pd).context().dmabuf_import();
        if (!import) {
            throw Error(EOPNOTSUPP, function,
                        import.reason + (import.remedy.empty() ? "" : "; " + import.remedy));
        }
        return 0;
    });
}

int rdmabuf_nearest(rdmabuf_resolver* resolver, const void* address, char names[][64],
                    size_t count) {
    constexpr const char* function = "rdmabuf_nearest";
    return guarded(function, [&] {
        require(function, {resolver});
        if (count > 0) {
            require(function, {names});
        }
        const auto match = resolver->resolver.try_find(number(address));
        const MemoryLocation location = match ? locate_memory(match->allocation, number(address))
                                              : locate_host_memory(number(address));
        const Topology topology = Topology::read();
        const std::vector<RankedNic> nics = topology.nearest(location);
        // Without RDMA devices, /sys/class/infiniband may be missing. This is not an error.
        if (nics.empty() && !topology.problems().empty() &&
            ::access("/sys/class/infiniband", F_OK) == 0) {
            throw Error(EIO, function, topology.problems().front());
        }
        for (std::size_t i = 0; i < std::min(count, nics.size()); ++i) {
            copy_text(names[i], nics[i].name);
        }
        return static_cast<int>(nics.size());
    });
}

int rdmabuf_flush(rdmabuf_resolver* resolver, const void* address) {
    constexpr const char* function = "rdmabuf_flush";
    return guarded(function, [&] {
        require(function, {resolver});
        const auto match = resolver->resolver.try_find(number(address));
        if (!match || match->allocation.kind == MemoryKind::system ||
            match->allocation.kind == MemoryKind::pinned_host) {
            return 1;
        }
#if RDMABUF_HAVE_PROVIDER_CUDA
        // If the program has added CUDA memory by rdmabuf_external_add(), `match->exporter` is the
        // exporter for added memory. The CUDA exporter is then queried too.
        const auto knows = [&](const std::shared_ptr<Exporter>& exporter) {
            return exporter->name() == "cuda" &&
                   (exporter == match->exporter || exporter->find(number(address)));
        };
        if (std::ranges::any_of(resolver->resolver.exporters(), knows)) {
            return flush_cuda_writes(number(address)) ? 0 : 1;
        }
#endif
        throw Error(EOPNOTSUPP, function,
                    "there is no flush for memory of " + std::string(match->exporter->name()) +
                        ": read the last bytes back through the NIC");
    });
}

} // extern "C"

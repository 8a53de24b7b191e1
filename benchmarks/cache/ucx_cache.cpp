// SPDX-License-Identifier: BSD-3-Clause
#include "contender.hpp"

#if RDMABUF_BENCHMARK_HAVE_UCX

extern "C" {
#include <ucs/memory/rcache.h>
}
#include <sys/mman.h>

#include <stdexcept>
#include <string>

namespace {

ucs_status_t register_nothing(void*, ucs_rcache_t*, void*, ucs_rcache_region_t*, std::uint16_t) {
    return UCS_OK;
}
void deregister_nothing(void*, ucs_rcache_t*, ucs_rcache_region_t*) {}
void describe_nothing(void*, ucs_rcache_t*, ucs_rcache_region_t*, char* text, std::size_t) {
    *text = '\0';
}

/// Uses the cache parameters of UCX's InfiniBand transport, except that it installs no hooks for
/// memory events. The hooks would cost nothing on a hit.
class UcxCache final : public Contender {
  public:
    explicit UcxCache(const Memory& memory) : memory_(memory) {
        ops_.mem_reg = register_nothing;
        ops_.mem_dereg = deregister_nothing;
        ops_.dump_region = describe_nothing;
        ucs_rcache_params_t parameters{};
        parameters.region_struct_size = sizeof(Region);
        parameters.alignment = Memory::piece;
        parameters.max_alignment = Memory::piece;
        parameters.ops = &ops_;
        parameters.max_regions = ~0UL;
        parameters.max_size = ~std::size_t{0};
        check(ucs_rcache_create(&parameters, "benchmark", nullptr, &cache_), "ucs_rcache_create");
        for (std::uint32_t i = 0; i < memory.entries; ++i) {
            ucs_rcache_region_put(cache_, get(memory.address(i)));
        }
    }
    ~UcxCache() override { ucs_rcache_destroy(cache_); }
    UcxCache(const UcxCache&) = delete;
    UcxCache& operator=(const UcxCache&) = delete;

    std::uint32_t hit(long times, std::uint32_t seed) override {
        Sequence sequence(seed);
        std::uint32_t keys = 0;
        for (long i = 0; i < times; ++i) {
            ucs_rcache_region_t* const region =
                get(memory_.address(sequence.next(memory_.entries)));
            keys ^= reinterpret_cast<const Region*>(region)->lkey;
            ucs_rcache_region_put(cache_, region);
        }
        return keys;
    }

  private:
    struct Region {
        ucs_rcache_region_t super;
        std::uint32_t lkey;
    };

    static void check(ucs_status_t status, const char* function) {
        if (status != UCS_OK) {
            throw std::runtime_error(std::string(function) + ": " + ucs_status_string(status));
        }
    }
    ucs_rcache_region_t* get(std::uintptr_t address) {
        ucs_rcache_region_t* region = nullptr;
        check(ucs_rcache_get(cache_, reinterpret_cast<void*>(address), Memory::piece,
                             PROT_READ | PROT_WRITE, nullptr, &region),
              "ucs_rcache_get");
        return region;
    }

    Memory memory_;
    ucs_rcache_ops_t ops_{};
    ucs_rcache_t* cache_ = nullptr;
};

} // namespace

std::unique_ptr<Contender> make_ucx_cache(const Memory& memory) {
    return std::make_unique<UcxCache>(memory);
}

#else

std::unique_ptr<Contender> make_ucx_cache(const Memory&) {
    return nullptr;
}

#endif

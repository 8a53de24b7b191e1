// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/registration_cache.hpp>

#include "contender.hpp"

namespace {

constexpr auto access_flags = rdmabuf::Access::local_write | rdmabuf::Access::remote_write;

class LibraryCache final : public Contender {
  public:
    LibraryCache(const rdmabuf::ProtectionDomain& pd, const Memory& memory)
        : memory_(memory), cache_(pd, rdmabuf::Resolver()) {
        for (std::uint32_t i = 0; i < memory.entries; ++i) {
            cache_.acquire(memory.address(i), Memory::piece, access_flags).reset();
        }
    }

    std::uint32_t hit(long times, std::uint32_t seed) override {
        Sequence sequence(seed);
        std::uint32_t keys = 0;
        for (long i = 0; i < times; ++i) {
            const auto lease = cache_.acquire(memory_.address(sequence.next(memory_.entries)),
                                              Memory::piece, access_flags);
            keys ^= lease.lkey();
        }
        return keys;
    }

  private:
    Memory memory_;
    rdmabuf::RegistrationCache cache_;
};

} // namespace

std::unique_ptr<Contender> make_library_cache(const rdmabuf::ProtectionDomain& pd,
                                              const Memory& memory) {
    return std::make_unique<LibraryCache>(pd, memory);
}

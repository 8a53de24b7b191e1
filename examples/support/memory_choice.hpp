// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <rdmabuf/resolver.hpp>

#include "named.hpp"

namespace examples {

enum class MemoryType : std::uint8_t {
    host,
    cuda,
    habana,
    level_zero,
    neuron,
    rocm,
    udmabuf,
    dma_heap,
    drm,
    memfd,
    external,
    dm,
};
/// But for host and dm they are called after the exporter that makes them, or knows them.
inline constexpr auto memory_types = std::to_array<Named<MemoryType>>({
    {"host", MemoryType::host},
    {"cuda", MemoryType::cuda},
    {"habana", MemoryType::habana},
    {"level-zero", MemoryType::level_zero},
    {"neuron", MemoryType::neuron},
    {"rocm", MemoryType::rocm},
    {"udmabuf", MemoryType::udmabuf},
    {"dma-heap", MemoryType::dma_heap},
    {"drm", MemoryType::drm},
    {"memfd", MemoryType::memfd},
    {"external", MemoryType::external},
    {"dm", MemoryType::dm},
});
/// As on the command line: "dma-heap".
[[nodiscard]] const char* to_string(MemoryType type) noexcept;

/// What memory a program is to use.
struct MemoryChoice {
    MemoryType type = MemoryType::host;
    std::string heap = "system";
    std::string drm_node;
    std::string drm_driver;
};

/// "dma_heap": what make_resolver()'s resolver knows the exporter as.
[[nodiscard]] std::string exporter_name(MemoryType type);

/// All exporters of this machine, except where one in particular is chosen, or the stand-in that
/// they do not have among them.
[[nodiscard]] rdmabuf::Resolver make_resolver(const MemoryChoice& choice);

} // namespace examples

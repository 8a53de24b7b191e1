// SPDX-License-Identifier: BSD-3-Clause
#include "proof.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <span>
#include <stdexcept>

#include <rdmabuf/error.hpp>
#include <rdmabuf/registration.hpp>

#include "../memory.hpp"
#include "loopback.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20U;
constexpr std::chrono::milliseconds measured_time{50};

/// The error of bytes that differ although the requests completed with success.
class LostBytes : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// The part of the memory that one transfer writes or reads.
struct Part {
    std::size_t offset;
    std::size_t length;
};

/// The sizes of the buffer, and the parts that are transferred. Memory of the NIC is small, so its
/// buffer is smaller.
struct Plan {
    std::size_t size;
    std::vector<Part> parts;
};

Plan make_plan(const Context& context, const MemoryKindEntry& memory, std::uint64_t max_rdma) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::size_t size = 4 * mebibyte;
    if (memory.options.type == "dm") {
        const std::uint64_t capacity = context.attributes().max_dm_size();
        size = std::min<std::size_t>(size, capacity / 2 / 64 * 64);
    }
    Plan plan{.size = size, .parts = {{.offset = 1, .length = 1}}};
    if (size >= 4 * page) {
        plan.parts.push_back({.offset = page + 3, .length = page - 1});
    }
    if (size >= 4 * mebibyte) {
        plan.parts.push_back(
            {.offset = mebibyte + 5,
             .length = static_cast<std::size_t>(std::min<std::uint64_t>(2 * mebibyte, max_rdma))});
    }
    return plan;
}

/// Returns the byte at an offset of the memory before any transfer.
std::byte initial_byte(std::size_t offset) {
    return static_cast<std::byte>((offset * 7 + 3) & 0xffU);
}
/// Returns the byte that is transferred to an offset of the memory.
std::byte transferred_byte(std::size_t offset) {
    return static_cast<std::byte>((offset * 13 + (offset >> 8U) + 101) & 0xffU);
}

/// Registered host memory for the other end of each transfer.
struct HostBuffer {
    HostBuffer(const ProtectionDomain& pd, std::size_t size)
        : bytes(size),
          region(register_memory(
              pd, Resolver(), bytes.data(), size,
              {.access = Access::local_write | Access::remote_write | Access::remote_read})) {}

    [[nodiscard]] ibv_sge sge(const Part& part) const {
        return region.sge(part.offset, static_cast<std::uint32_t>(part.length));
    }

    std::vector<std::byte> bytes;
    Registration region;
};

void fill(TestMemory& memory, std::size_t size) {
    memory.access(CpuAccessMode::write, 0, size, [](std::span<std::byte> bytes) {
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            bytes[i] = initial_byte(i);
        }
    });
}

bool inside(const std::vector<Part>& parts, std::size_t offset) {
    return std::ranges::any_of(parts, [offset](const Part& part) {
        return offset >= part.offset && offset < part.offset + part.length;
    });
}

/// Compares the whole memory: the transferred parts and the bytes around them.
/// @throws LostBytes if a byte differs
void compare_memory(TestMemory& memory, const Plan& plan) {
    memory.access(CpuAccessMode::read, 0, plan.size, [&plan](std::span<std::byte> bytes) {
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            const bool written = inside(plan.parts, i);
            if (bytes[i] != (written ? transferred_byte(i) : initial_byte(i))) {
                throw LostBytes(
                    written
                        ? fmt::format("the writes completed, but byte {} of the memory is not "
                                      "the one that was written",
                                      i)
                        : fmt::format("byte {} of the memory changed, which no write contains", i));
            }
        }
    });
}

void write_parts(const Loopback& loopback, const TestMemory& memory, HostBuffer& host,
                 const Plan& plan) {
    for (const Part& part : plan.parts) {
        for (std::size_t i = part.offset; i < part.offset + part.length; ++i) {
            host.bytes[i] = transferred_byte(i);
        }
        loopback.post_write(host.sge(part), memory.remote().at(part.offset));
        loopback.wait();
    }
}

/// Reads the parts into host memory and compares them. @throws LostBytes if a byte differs
void read_parts(const Loopback& loopback, const TestMemory& memory, HostBuffer& host,
                const Plan& plan) {
    std::ranges::fill(host.bytes, std::byte{0});
    for (const Part& part : plan.parts) {
        loopback.post_read(host.sge(part), memory.remote().at(part.offset));
        loopback.wait();
    }
    for (std::size_t i = 0; i < host.bytes.size(); ++i) {
        const std::byte expected = inside(plan.parts, i) ? transferred_byte(i) : std::byte{0};
        if (host.bytes[i] != expected) {
            throw LostBytes(
                fmt::format("the reads completed, but byte {} is not the one in the memory", i));
        }
    }
}

/// Measures the bandwidth of RDMA writes. @return bytes per second
double measure(const Loopback& loopback, const TestMemory& memory, const HostBuffer& host,
               const Plan& plan, std::uint64_t max_rdma) {
    using Clock = std::chrono::steady_clock;
    const auto length =
        static_cast<std::size_t>(std::min<std::uint64_t>({mebibyte, plan.size, max_rdma}));
    const Part part{.offset = 0, .length = length};
    std::uint32_t posted = 0;
    std::uint32_t done = 0;
    const auto begin = Clock::now();
    while (Clock::now() - begin < measured_time) {
        for (; posted - done < Loopback::depth; ++posted) {
            loopback.post_write(host.sge(part), memory.remote().at(0));
        }
        loopback.wait();
        ++done;
    }
    for (; done < posted; ++done) {
        loopback.wait();
    }
    const std::chrono::duration<double> elapsed = Clock::now() - begin;
    return static_cast<double>(length) * done / elapsed.count();
}

void describe_registration(Proof& proof, const TestMemory& memory, const Trail& trail) {
    proof.path = memory.origin().path;
    if (!trail.empty() && proof.path.starts_with("dmabuf")) {
        proof.mapping = trail.back().mapping == MappingKind::pcie ? "pcie" : "standard";
    }
}

/// Describes the distance to the NIC and the bandwidth of the link.
void describe_path(Proof& proof, const MemoryKindEntry& memory, const NicFiles& nic,
                   const Machine& machine) {
    const Nic* const found = machine.topology().find_nic(nic.name);
    if (found == nullptr) {
        return;
    }
    const auto gpu = PciAddress::parse(memory.gpu);
    std::optional<double> gigabits = found->port_speed;
    if (gpu) {
        const Path path = machine.topology().path({.device = gpu}, *found);
        proof.distance = to_string(path.type);
        gigabits = path.bandwidth;
    }
    if (gigabits && !nic.software) {
        proof.link = *gigabits * 1e9 / 8;
    }
}

/// Explains the first failed attempt of a registration.
void explain(Proof& proof, const Trail& trail) {
    for (const Attempt& attempt : trail) {
        if (!attempt.worked() && proof.remedy.empty()) {
            proof.remedy = attempt.remedy;
        }
    }
}

std::uint64_t longest_rdma(const Context& context) {
    return context.srd() ? context.srd_attributes().max_rdma_size : context.max_message_size();
}

} // namespace

Proof prove(const MemoryKindEntry& memory, const NicFiles& nic, const Context& context,
            const Machine& machine) {
    Proof proof{.memory = memory.name, .nic = nic.name, .counts = memory.counts};
    Trail trail;
    try {
        describe_path(proof, memory, nic, machine);
        if (memory.options.type == "dm" && context.attributes().max_dm_size() == 0) {
            proof.text = "the device has no memory of its own (max_dm_size is 0)";
            return proof;
        }
        proof.verdict = Verdict::fail;
        const ProtectionDomain pd(context);
        const std::uint64_t max_rdma = longest_rdma(context);
        const Plan plan = make_plan(context, memory, max_rdma);
        TestMemory tested(
            pd, memory.options, {.size = plan.size, .region_offset = 0, .region_length = plan.size},
            {.access = Access::local_write | Access::remote_write | Access::remote_read,
             .topology = &machine.topology(),
             .trail = &trail});
        describe_registration(proof, tested, trail);
        HostBuffer host(pd, plan.size);
        const Loopback loopback(pd);
        fill(tested, plan.size);
        write_parts(loopback, tested, host, plan);
        compare_memory(tested, plan);
        proof.wrote = true;
        read_parts(loopback, tested, host, plan);
        proof.read = true;
        proof.verdict = Verdict::pass;
        proof.bandwidth = measure(loopback, tested, host, plan, max_rdma);
    } catch (const LostBytes& lost) {
        proof.text = lost.what();
        proof.remedy =
            "The data was lost between NIC and memory: see the conditions on the IOMMU (C-32), on "
            "ACS (C-31) and on the mapping (C-29).";
    } catch (const std::exception& error) {
        proof.text = error.what();
        explain(proof, trail);
    }
    return proof;
}

} // namespace rdmabuf::tools::doctor

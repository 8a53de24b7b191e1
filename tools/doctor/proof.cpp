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
#include <rdmabuf/topology.hpp>

#include "../format.hpp"
#include "../memory.hpp"
#include "kernel_files.hpp"
#include "loopback.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

constexpr std::chrono::milliseconds measured_time{50};

/// Thrown if bytes differ although all requests completed with IBV_WC_SUCCESS.
class LostBytes : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// The part of the memory that one transfer writes or reads.
struct Part {
    std::size_t offset;
    std::size_t length;
};

/// The size of the buffer, and the parts that are transferred. Memory of the NIC is small, so its
/// buffer is smaller.
struct Plan {
    std::size_t size;
    std::vector<Part> parts;
};

Plan make_plan(const Context& context, const MemoryKindEntry& memory, std::uint64_t max_rdma) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const DeviceAttributes attributes = context.attributes();
    std::uint64_t size = 4 * mebibyte;
    if (attributes.max_mr_size() != 0) {
        size = std::min(size, attributes.max_mr_size());
    }
    if (memory.options.type == "dm") {
        constexpr std::uint64_t unit = 64; // ConnectX allocates NIC memory in this unit.
        size = std::min(size, attributes.max_dm_size() / 2 / unit * unit);
    }
    Plan plan{.size = static_cast<std::size_t>(size), .parts = {{.offset = 1, .length = 1}}};
    if (size >= 8 * page) {
        plan.parts.push_back({.offset = page + 3, .length = page - 1});
        plan.parts.push_back({.offset = plan.size / 4 + 5,
                              .length = static_cast<std::size_t>(std::min(size / 2, max_rdma))});
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

/// Registered host memory: the local buffer of the RDMA writes and reads.
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

/// Fills the memory with initial_byte(), also the parts that no transfer changes (the guards).
void fill(TestMemory& memory, std::size_t size) {
    memory.access(CpuAccessMode::write, 0, size, [](std::span<std::byte> bytes) {
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            bytes[i] = initial_byte(i);
        }
    });
}

/// Returns the expected contents of the memory: the bytes that @p plan writes, and for each offset
/// that @p plan does not write, the byte that @p other returns for this offset.
template <class Other>
std::vector<std::byte> expected_bytes(const Plan& plan, const Other& other) {
    std::vector<std::byte> bytes(plan.size);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = other(i);
    }
    for (const Part& part : plan.parts) {
        for (std::size_t i = part.offset; i < part.offset + part.length; ++i) {
            bytes[i] = transferred_byte(i);
        }
    }
    return bytes;
}

/// @throws LostBytes with the offset of the first byte that differs
void compare(std::span<const std::byte> bytes, std::span<const std::byte> expected,
             const char* what) {
    const auto differing = std::ranges::mismatch(bytes, expected).in1;
    if (differing != bytes.end()) {
        throw LostBytes(fmt::format("{}, but byte {} is wrong", what, differing - bytes.begin()));
    }
}

void write_parts(const Loopback& loopback, const TestMemory& memory, HostBuffer& host,
                 const Plan& plan) {
    // Copy the bytes and do not assign the vector: the registered memory must not move.
    std::ranges::copy(expected_bytes(plan, [](std::size_t) { return std::byte{0}; }),
                      host.bytes.begin());
    for (const Part& part : plan.parts) {
        loopback.post_write(host.sge(part), memory.remote().at(part.offset));
        loopback.wait();
    }
}

/// Compares the whole memory: the transferred parts and the bytes around them.
/// @throws LostBytes if a byte differs
void compare_memory(TestMemory& memory, const Plan& plan) {
    const auto expected = expected_bytes(plan, initial_byte);
    memory.access(CpuAccessMode::read, 0, plan.size, [&expected](std::span<std::byte> bytes) {
        compare(bytes, expected, "the writes completed");
    });
}

/// Reads the parts into host memory and compares them. @throws LostBytes if a byte differs
void read_parts(const Loopback& loopback, const TestMemory& memory, HostBuffer& host,
                const Plan& plan) {
    std::ranges::fill(host.bytes, std::byte{0});
    for (const Part& part : plan.parts) {
        loopback.post_read(host.sge(part), memory.remote().at(part.offset));
        loopback.wait();
    }
    compare(host.bytes, expected_bytes(plan, [](std::size_t) { return std::byte{0}; }),
            "the reads completed");
}

/// Measures the bandwidth of RDMA writes. @return bytes per second
double measure(const Loopback& loopback, const TestMemory& memory, const HostBuffer& host,
               const Plan& plan, std::uint64_t max_rdma) {
    using Clock = std::chrono::steady_clock;
    const auto length =
        static_cast<std::size_t>(std::min<std::uint64_t>({mebibyte, plan.size, max_rdma}));
    const Part part{.offset = 0, .length = length};
    const auto begin = Clock::now();
    loopback.post_write(host.sge(part), memory.remote().at(0));
    loopback.wait();
    std::uint32_t posted = 1;
    std::uint32_t done = 1;
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

/// Sets Proof::distance and Proof::link.
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

/// Sets Proof::text and Proof::remedy from the first attempt in @p trail that has failed and has an
/// exporter (Attempt::exporter).
void explain(Proof& proof, const Trail& trail) {
    for (const Attempt& attempt : trail) {
        if (attempt.worked() || attempt.exporter.empty()) {
            continue;
        }
        proof.text = fmt::format(
            "{}{}{}: {}{}{}", attempt.call, attempt.device.empty() ? "" : " on ", attempt.device,
            describe_errno(attempt.error), attempt.meaning.empty() ? "" : ": ", attempt.meaning);
        proof.remedy = attempt.remedy;
        if (attempt.error == kernel_enotsupp) {
            proof.remedy +=
                " See the mapping (C-29), ACS on platforms with direct NICs (C-56), and "
                "the support of the GPU's driver (C-12, C-15).";
        }
        return;
    }
}

/// Returns the number of bytes of system memory that the driver of an AMD GPU uses; nullopt for
/// other memory.
std::optional<std::uint64_t> system_memory_of(const Machine& machine, const std::string& gpu) {
    return gpu.empty() ? std::nullopt
                       : machine.number("/sys/bus/pci/devices/" + gpu + "/mem_info_gtt_used");
}

/// Returns the registration paths that a proof tries. If a peer memory module is loaded, its path
/// is tried as well: it is the only path to GPUs whose driver exports no dma-bufs.
PathOrder paths_for(const MemoryKindEntry& memory, const Machine& machine) {
    if (memory.options.type == "cuda" && !peer_memory_module(machine).empty()) {
        return {RegistrationPath::dmabuf, RegistrationPath::peermem};
    }
    return {};
}

/// Returns the usual cause of a failed request to the tested memory, and what to check.
std::string remedy_for(ibv_wc_status status) {
    switch (status) {
        case IBV_WC_LOC_PROT_ERR:
        case IBV_WC_LOC_LEN_ERR:
        case IBV_WC_REM_ACCESS_ERR:
        case IBV_WC_REM_INV_REQ_ERR:
        case IBV_WC_REM_INV_RD_REQ_ERR:
            return "The NIC refused the key or the address: the registered range is not that of "
                   "the memory (the exporter has reported a wrong offset), or the driver of the "
                   "memory has revoked the registration. `rdmabuf register` shows each attempt.";
        case IBV_WC_RETRY_EXC_ERR:
        case IBV_WC_RESP_TIMEOUT_ERR:
        case IBV_WC_REM_OP_ERR:
        case IBV_WC_REM_ABORT_ERR:
        case IBV_WC_FATAL_ERR:
            return "The NIC could not access the memory. Usual causes are the wrong mapping "
                   "(C-29), a translating IOMMU (C-32), ACS (C-31) and a host bridge that does not "
                   "permit peer-to-peer DMA (C-33). The vendor error and the kernel log tell more.";
        default:
            return "See the vendor error and the kernel log.";
    }
}

std::uint64_t longest_rdma(const Context& context) {
    return context.srd() ? context.srd_attributes().max_rdma_size : context.max_message_size();
}

} // namespace

Finding prove_export(const MemoryKindEntry& memory) {
    Finding finding{.id = "C-59",
                    .severity = Severity::blocks,
                    .condition = "the driver exports its memory as a dma-buf",
                    .subject = {memory.name},
                    .found = memory.missing,
                    .advice = {.remedy = memory.remedy},
                    .source = "rdmabuf, include/rdmabuf/exporter.hpp"};
    if (!memory.missing.empty()) {
        return finding;
    }
    constexpr std::size_t size = 2 * mebibyte;
    try {
        const AllocatedMemory allocated(memory.options, size);
        const ExportedRange range = allocated.resolver().export_range(allocated.address(), size);
        finding.verdict = Verdict::pass;
        finding.found = fmt::format("{} exported", format_size(range.length()));
    } catch (const std::exception& error) {
        finding.verdict = Verdict::fail;
        finding.found = error.what();
        finding.advice.means = "No NIC can register this memory as a dma-buf.";
    }
    return finding;
}

Proof prove(const MemoryKindEntry& memory, const NicFiles& nic, const Context& context,
            const Machine& machine) {
    Proof proof{.memory = memory.name,
                .nic = nic.name,
                .counts = memory.counts,
                .on_gpu = memory.on_gpu,
                .gpu = memory.gpu,
                .software = nic.software ? nic.driver : ""};
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
        const auto before = system_memory_of(machine, memory.gpu);
        TestMemory tested(
            pd, memory.options, {.size = plan.size, .region_offset = 0, .region_length = plan.size},
            {.paths = paths_for(memory, machine),
             .access = Access::local_write | Access::remote_write | Access::remote_read,
             .topology = &machine.topology(),
             .trail = &trail});
        describe_registration(proof, tested, trail);
        const auto after = system_memory_of(machine, memory.gpu);
        proof.moved = before && after && *after >= *before + plan.size;
        HostBuffer host(pd, plan.size);
        const Loopback loopback(pd);
        fill(tested, plan.size);
        write_parts(loopback, tested, host, plan);
        compare_memory(tested, plan);
        proof.wrote = true;
        read_parts(loopback, tested, host, plan);
        proof.read = true;
        proof.bandwidth = measure(loopback, tested, host, plan, max_rdma);
        proof.verdict = Verdict::pass;
    } catch (const LostBytes& lost) {
        proof.text = lost.what();
        proof.remedy =
            "The data was lost between NIC and memory: see the conditions on the IOMMU (C-32), on "
            "ACS (C-31) and on the mapping (C-29).";
    } catch (const FailedRequest& failed) {
        proof.text = failed.what();
        proof.remedy = remedy_for(failed.status());
    } catch (const std::exception& error) {
        proof.text = error.what();
        if (proof.path.empty()) {
            explain(proof, trail);
        }
    }
    return proof;
}

} // namespace rdmabuf::tools::doctor

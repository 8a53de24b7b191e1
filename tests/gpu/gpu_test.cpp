// SPDX-License-Identifier: BSD-3-Clause
// The cuda exporter with a driver: what it makes of memory of each kind that a program can have. On
// a GPU it is the driver that is asked; on the fake one this proves only that the tests are right.
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rdmabuf/providers/cuda.hpp>
#include <rdmabuf/rdmabuf.hpp>

#include "cuda_program.hpp"
#include "loopback.hpp"
#include "support.hpp"

#ifndef DMA_BUF_MAGIC
#define DMA_BUF_MAGIC 0x444d4142
#endif

namespace rdmabuf::testing {
namespace {

using cuda_program::Program;
using Place = cuda_program::Program::Place;

/// Prints a fact about this machine, for the reader of the output.
void note(const std::string& text) {
    std::cout << "[   NOTE   ] " << text << std::endl;
}

bool is_dmabuf(int fd) {
    struct statfs system {};
    return ::fstatfs(fd, &system) == 0 && system.f_type == DMA_BUF_MAGIC;
}

/// "exp_name" of /proc/self/fdinfo; empty where it has none.
std::string exporter_name(int fd) {
    std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd));
    for (std::string line; std::getline(info, line);) {
        if (line.starts_with("exp_name:")) {
            return line.substr(line.find_first_not_of(" \t", sizeof("exp_name:") - 1));
        }
    }
    return {};
}

std::size_t round_up(std::size_t size) {
    return (size + page_size() - 1) / page_size() * page_size();
}

class Gpu : public ::testing::Test {
  protected:
    void SetUp() override {
        const Availability available = exporter_->availability();
        if (!available) {
            GTEST_SKIP() << to_string(available);
        }
        program_.emplace();
    }

    /// It begins at @p address, is a dma-buf where the driver is a real one, and has the pages that
    /// the range touches, and no more.
    void expect_export(std::uintptr_t address, std::size_t length) {
        const ExportedRange range = exporter_->export_range(address, length);
        EXPECT_EQ(range.offset(), address % page_size());
        EXPECT_EQ(::lseek(range.fd(), 0, SEEK_END),
                  static_cast<off_t>(round_up(address % page_size() + length)));
        EXPECT_TRUE(closed_on_exec(range.fd()));
        const std::string name = exporter_name(range.fd());
        EXPECT_EQ(is_dmabuf(range.fd()), !name.empty());
        note(std::to_string(length) + " bytes, " + std::to_string(range.offset()) +
             " after the begin of a page: " + (name.empty() ? "no dma-buf" : "dma-buf of " + name));
    }

    /// Writes @p length bytes from one place to another, and sees that they are there and nothing
    /// else has changed in @p whole bytes.
    void expect_write(std::uintptr_t from, std::uintptr_t to, std::size_t offset,
                      std::size_t length, std::size_t whole) {
        Loopback net;
        net.connect();
        const auto sent = pattern(whole, 1);
        auto expected = pattern(whole, 2);
        program_->copy_in(from, sent);
        program_->copy_in(to, expected);
        const auto region = [&](const End& end, std::uintptr_t address) {
            return DmaBufMR(end.pd, exporter_->export_range(address + offset, length),
                            {.access = full_access});
        };
        const DmaBufMR here = region(net.a, from);
        const DmaBufMR there = region(net.b, to);
        ASSERT_TRUE(net.a.qp->post_write(here.sge(0, static_cast<std::uint32_t>(length)),
                                         there.remote(), {.wr_id = 1}));
        net.a.expect(1);
        const auto at = static_cast<std::ptrdiff_t>(offset);
        std::copy_n(sent.begin() + at, length, expected.begin() + at);
        EXPECT_TRUE(program_->copy_out(to, whole) == expected) << length << " bytes at " << offset;
    }

    std::shared_ptr<Allocator> exporter_ = make_cuda_exporter();
    std::optional<Program> program_;
};

TEST_F(Gpu, IsAvailable) {
    note(to_string(exporter_->availability()));
}

TEST_F(Gpu, ExportsWhatCuMemAllocMade) {
    const std::size_t size = std::size_t{4} << 20U;
    const auto memory = program_->allocate(size);
    const auto address = Program::address_of(memory);
    const auto found = exporter_->find(address + 12345);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->base, address);
    EXPECT_EQ(found->length, size);
    EXPECT_EQ(found->kind, MemoryKind::device);
    note("memory of " + found->pci_address);
    expect_export(address, size);
    expect_export(address + 12345, 54321);
    expect_export(address + size - 1, 1);
}

TEST_F(Gpu, ExportsSmallAllocationsThatShareAPage) {
    const auto one = program_->allocate(512);
    const auto other = program_->allocate(512);
    expect_export(Program::address_of(one), 512);
    expect_export(Program::address_of(other) + 100, 400);
}

TEST_F(Gpu, ExportsAcrossMappingsOfOneReservedRange) {
    const std::size_t segment = program_->granularity();
    const auto memory = program_->map({Place::device, Place::device}, segment);
    const auto address = Program::address_of(memory);
    expect_export(address, 2 * segment);
    expect_export(address + segment - 100, 200);
}

TEST_F(Gpu, MovesBytesOfInteriorRanges) {
    const std::size_t size = 300'001;
    const auto from = program_->allocate(size);
    const auto to = program_->allocate(size);
    for (const std::size_t length : {std::size_t{1}, page_size() + 1, std::size_t{200'003}}) {
        for (const std::size_t offset : {std::size_t{0}, std::size_t{511}, page_size() + 13}) {
            expect_write(Program::address_of(from), Program::address_of(to), offset, length, size);
        }
    }
}

TEST_F(Gpu, MovesBytesAcrossMappings) {
    const std::size_t segment = program_->granularity();
    const auto from = program_->map({Place::device, Place::device}, segment);
    const auto to = program_->map({Place::device, Place::device}, segment);
    expect_write(Program::address_of(from), Program::address_of(to), segment - 5'000, 10'001,
                 2 * segment);
}

TEST_F(Gpu, AFreedAndReallocatedAddressHasAnotherGeneration) {
    const std::size_t size = std::size_t{2} << 20U;
    std::map<std::uintptr_t, std::uint64_t> generations;
    unsigned reused = 0;
    for (int round = 0; round < 100; ++round) {
        const auto memory = program_->allocate(size);
        const auto found = exporter_->find(Program::address_of(memory));
        ASSERT_TRUE(found);
        const auto [before, is_new] = generations.try_emplace(found->base, found->generation);
        if (!is_new) {
            EXPECT_NE(before->second, found->generation);
            before->second = found->generation;
            ++reused;
        }
    }
    note("100 allocations, " + std::to_string(reused) +
         " of them at an address that had been freed");
    EXPECT_GT(reused, 0U) << "the driver never gave an address out again: this proved nothing";
}

TEST_F(Gpu, MemoryThatIsMappedAgainAtItsAddressHasAnotherGeneration) {
    const std::size_t size = program_->granularity();
    const auto memory = program_->map({Place::device}, size);
    const auto before = exporter_->find(Program::address_of(memory));
    program_->map_again(memory, size);
    const auto after = exporter_->find(Program::address_of(memory));
    ASSERT_TRUE(before && after);
    EXPECT_EQ(before->base, after->base);
    EXPECT_NE(before->generation, after->generation);
}

TEST_F(Gpu, AFreedAddressIsNobodys) {
    auto memory = program_->allocate(std::size_t{2} << 20U);
    const auto address = Program::address_of(memory);
    memory.reset();
    EXPECT_FALSE(exporter_->find(address));
    const auto error = error_of([&] { (void)exporter_->export_range(address, 4096); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code().value(), EFAULT);
}

/// What a program reads that asks for a dma-buf of memory that is not exported.
std::string trail_of(std::uintptr_t address, std::size_t length) {
    const Context context = Context::open_first();
    const ProtectionDomain pd(context);
    try {
        (void)register_memory(pd, Resolver({make_cuda_exporter()}), address, length, {});
    } catch (const Error& error) {
        return error.what();
    }
    return {};
}

TEST_F(Gpu, RegistersManagedMemoryByOnDemandPagingOrSaysWhyNot) {
    const auto memory = program_->allocate_managed(100'000);
    const Context context = Context::open_first();
    const ProtectionDomain pd(context);
    try {
        const Registration region =
            register_memory(pd, Resolver({exporter_}), Program::address_of(memory), 100'000, {});
        note("registered by path " + std::string(to_string(region.path())));
        EXPECT_EQ(region.path(), RegistrationPath::on_demand);
    } catch (const Error& error) {
        note(error.what());
        EXPECT_NE(std::string(error.what()).find("cuMemAllocManaged"), std::string::npos);
    }
}

TEST_F(Gpu, RegistersMemoryOfPoolsOrSaysWhyNot) {
    const auto memory = program_->allocate_of_pool(100'000);
    const std::string said = trail_of(Program::address_of(memory), 100'000);
    note(said.empty() ? "memory of cuMemAllocAsync: registered" : said);
    EXPECT_TRUE(said.empty() || said.find("cuMemAllocAsync") != std::string::npos);
}

TEST_F(Gpu, HostMemoryOfCuMemCreateIsHostMemory) {
    const std::size_t size = program_->granularity();
    const auto memory = program_->map({Place::host}, size);
    const auto found = exporter_->find(Program::address_of(memory) + size - 1);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, MemoryKind::pinned_host);
    EXPECT_EQ(found->base, Program::address_of(memory));
    EXPECT_EQ(found->length, size);
}

TEST_F(Gpu, DeviceMemoryBesideHostMemoryIsNotRegisteredAsHostMemory) {
    const std::size_t size = program_->granularity();
    for (const auto& places :
         {std::vector{Place::host, Place::device}, std::vector{Place::device, Place::host},
          std::vector{Place::host, Place::device, Place::host}}) {
        const auto memory = program_->map(places, size);
        const std::string said = trail_of(Program::address_of(memory), places.size() * size);
        note(said);
        EXPECT_NE(said, "") << "registered";
    }
}

TEST_F(Gpu, RegistersPinnedHostMemoryInOneWayOrAnother) {
    const auto memory = program_->allocate_host(100'000);
    const auto address = Program::address_of(memory);
    const auto found = exporter_->find(address);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, MemoryKind::pinned_host);
    const Context context = Context::open_first();
    const ProtectionDomain pd(context);
    Registration registration =
        register_memory(pd, Resolver({exporter_}), address, 100'000, {.access = full_access});
    note("memory of cuMemAllocHost: " + to_string(registration.trail()));
    registration.close();
}

TEST_F(Gpu, LeavesNoDescriptorBehind) {
    const auto memory = program_->allocate(1 << 20);
    const Context context = Context::open_first();
    const ProtectionDomain pd(context);
    const auto before = open_descriptors();
    for (int round = 0; round < 1000; ++round) {
        const DmaBufMR region(pd, exporter_->export_range(Program::address_of(memory), 1 << 20),
                              {.access = full_access});
    }
    EXPECT_EQ(open_descriptors(), before);
}

} // namespace
} // namespace rdmabuf::testing

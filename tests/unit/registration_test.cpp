// SPDX-License-Identifier: BSD-3-Clause
// register_memory() on softverbs. Fake exporters prove the order of what is tried and what is given
// back; what drivers answer is taken from their sources.
#include <fcntl.h>
#include <sys/mman.h>

#include <array>
#include <bit>
#include <fstream>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <rdmabuf/chunked_region.hpp>
#include <rdmabuf/providers/external.hpp>
#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/rdmabuf.hpp>

#include "register_by_c.hpp"
#include "registration/registration_hints.hpp"
#include "registration_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::Basics;
using ::testing::ElementsAre;
using testing::error_of;
using testing::fails_with;
using testing::FakeExporter;
using ::testing::HasSubstr;
using testing::RegistrationTest;
using testing::SoftverbsTest;
using enum RegistrationPath;

constexpr const char* function = "register_memory";
constexpr std::size_t size = testing::registered_size;
constexpr Access writable = testing::writable_access;

std::vector<RegistrationPath> paths_of(const Trail& trail) {
    std::vector<RegistrationPath> paths;
    for (const Attempt& attempt : trail) {
        paths.push_back(attempt.path);
    }
    return paths;
}

std::vector<int> errors_of(const Trail& trail) {
    std::vector<int> errors;
    for (const Attempt& attempt : trail) {
        errors.push_back(attempt.error);
    }
    return errors;
}

/// An interface by which memory is registered.
struct Interface {
    const char* name;
    testing::RegisterFunction* call;
};
std::ostream& operator<<(std::ostream& out, const Interface& interface) {
    return out << interface.name;
}

/// What the C++ interface and the C interface do alike. The tests of RegistrationTest need what the
/// C interface does not have: paths in another order, the trail of a failure as a list, or a
/// resolver that changes.
class AnyInterface : public RegistrationTest, public ::testing::WithParamInterface<Interface> {
  protected:
    AnyInterface() { register_ = GetParam().call; }

    [[nodiscard]] Registration register_memory(std::span<const ProtectionDomain> pds,
                                               const Resolver& resolver, std::uintptr_t address,
                                               std::size_t length,
                                               const RegistrationOptions& options = {}) const {
        return register_(pds, resolver, address, length, options);
    }
    template <class Address>
    [[nodiscard]] Registration register_memory(const ProtectionDomain& pd, const Resolver& resolver,
                                               Address address, std::size_t length,
                                               const RegistrationOptions& options = {}) const {
        return register_({&pd, 1}, resolver, std::bit_cast<std::uintptr_t>(address), length,
                         options);
    }
};

const auto interfaces =
    ::testing::Values(Interface{"cpp", register_memory}, Interface{"c", testing::register_by_c});
const auto name_of = [](const auto& each) { return std::string(each.param.name); };
INSTANTIATE_TEST_SUITE_P(By, AnyInterface, interfaces, name_of);

// Paths that work

TEST_P(AnyInterface, RegistersDeviceMemoryAsADmaBuf) {
    const Registration region = register_memory(basics_.pd, resolver_, device_address() + 4096 + 8,
                                                1000, {.access = writable});
    EXPECT_EQ(region.path(), dmabuf);
    EXPECT_EQ(region.mapping(), MappingKind::standard);
    EXPECT_EQ(region.exporter(), "fake");
    EXPECT_EQ(region.address(), device_address() + 4104);
    EXPECT_EQ(region.iova(), device_address() + 4104);
    EXPECT_EQ(region.length(), 1000U);
    EXPECT_EQ(region.access(), writable);
    EXPECT_EQ(region.state(), RegistrationState::registered);
    EXPECT_EQ(region.allocation()->generation, 1U);
    ASSERT_EQ(registrations().size(), 1U);
    EXPECT_EQ(registrations()[0].function, "ibv_reg_dmabuf_mr");
    EXPECT_EQ(registrations()[0].start, 4104U);
    EXPECT_EQ(registrations()[0].length, 1000U);
    EXPECT_EQ(registrations()[0].iova, device_address() + 4104);
    EXPECT_EQ(registrations()[0].access, static_cast<unsigned>(writable));
    EXPECT_EQ(region.lkey(), region.native()->lkey);
    EXPECT_EQ(region.rkey(), region.native()->rkey);
    EXPECT_EQ(
        region.remote(),
        (RemoteRegion{.address = region.iova(), .length = 1000, .rkey = region.native()->rkey}));
    EXPECT_EQ(region.sge(8, 16).addr, region.iova() + 8);
    ASSERT_EQ(region.trail().size(), 1U);
    EXPECT_TRUE(region.trail()[0].worked());
    EXPECT_EQ(to_string(region.trail()), "dmabuf: ibv_reg_dmabuf_mr, memory of fake: registered.");
}

TEST_P(AnyInterface, RegistersHostMemoryThatNoExporterKnows) {
    const Registration region =
        register_memory(basics_.pd, resolver_, host_memory_.data(), host_memory_.size());
    EXPECT_EQ(region.path(), host);
    EXPECT_EQ(region.exporter(), "");
    EXPECT_FALSE(region.allocation());
    ASSERT_EQ(registrations().size(), 1U);
    EXPECT_EQ(registrations()[0].function, "ibv_reg_mr_iova2");
    EXPECT_EQ(registrations()[0].start, reinterpret_cast<std::uintptr_t>(host_memory_.data()));
    EXPECT_EQ(to_string(region.trail()),
              "dmabuf: find: Bad address (EFAULT): unknown memory. "
              "host: ibv_reg_mr: registered.");
}

TEST_P(AnyInterface, RegistersHostMemoryThatADevicesDriverPinned) {
    const auto pinned =
        std::make_shared<FakeExporter>(size, reinterpret_cast<std::uintptr_t>(host_memory_.data()));
    pinned->allocation.kind = MemoryKind::pinned_host;
    pinned->standard_error = ENOTSUP;
    const Registration region =
        register_memory(basics_.pd, Resolver({pinned}), host_memory_.data(), host_memory_.size());
    EXPECT_EQ(region.path(), host);
    EXPECT_EQ(region.exporter(), "fake");
    EXPECT_THAT(errors_of(region.trail()), ElementsAre(ENOTSUP, 0));
}

TEST_F(RegistrationTest, TakesThePathsInTheOrderOfTheCaller) {
    testing::fail_dmabufs(ENOMEM);
    const auto mapped =
        std::make_shared<FakeExporter>(4096, reinterpret_cast<std::uintptr_t>(host_memory_.data()));
    const Resolver resolver({mapped});
    const Registration region = register_memory(basics_.pd, resolver, host_memory_.data(), 4096,
                                                {.paths = {host, dmabuf, peermem}});
    EXPECT_EQ(region.path(), peermem);
    EXPECT_THAT(paths_of(region.trail()), ElementsAre(host, dmabuf, peermem));
    EXPECT_THAT(errors_of(region.trail()), ElementsAre(EPERM, ENOMEM, 0));

    const Registration first = register_memory(basics_.pd, resolver, host_memory_.data(), 4096,
                                               {.paths = {peermem, dmabuf}});
    EXPECT_THAT(paths_of(first.trail()), ElementsAre(peermem));
    EXPECT_EQ(mapped->releases, 1U);
}

TEST_P(AnyInterface, AddsRelaxedOrderingWhenItIsChosen) {
    const Registration relaxed = device({.relaxed_ordering = true});
    EXPECT_EQ(relaxed.access(), Access::local_write | Access::relaxed_ordering);
    EXPECT_EQ(registrations().back().access,
              static_cast<unsigned>(Access::local_write | Access::relaxed_ordering));
    const Registration strict = device();
    EXPECT_EQ(registrations().back().access, static_cast<unsigned>(Access::local_write));
}

TEST_P(AnyInterface, TakesAnIova) {
    const Registration region =
        register_memory(basics_.pd, resolver_, device_address() + 16, 100, {.iova = 0x5000'0010});
    EXPECT_EQ(region.iova(), 0x5000'0010U);
    EXPECT_EQ(region.address(), device_address() + 16);
    EXPECT_EQ(registrations().back().iova, 0x5000'0010U);
    EXPECT_EQ(region.remote().address, 0x5000'0010U);
}

TEST_P(AnyInterface, CountsZeroBasedHostMemoryFromZero) {
    const Registration region =
        register_memory(basics_.pd, resolver_, host_memory_.data(), host_memory_.size(),
                        {.access = Access::local_write | Access::zero_based});
    EXPECT_EQ(region.iova(), 0U);
    EXPECT_EQ(region.remote().address, 0U);
}

// Several protection domains

TEST_P(AnyInterface, RegistersOnSeveralProtectionDomainsFromOneExport) {
    const std::array pds{basics_.pd, ProtectionDomain(basics_.context),
                         ProtectionDomain(Context::open("soft0"))};
    const Registration region =
        register_memory(pds, resolver_, device_address(), size, {.access = writable});
    EXPECT_EQ(region.size(), 3U);
    EXPECT_EQ(exporter_->exports.size(), 1U);
    EXPECT_EQ(exporter_->releases, 1U);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 3U);
    ASSERT_EQ(registrations().size(), 3U);
    EXPECT_EQ(registrations()[0].fd, registrations()[2].fd);
    for (std::size_t i = 0; i < pds.size(); ++i) {
        EXPECT_EQ(region.protection_domain(i), pds[i]);
        EXPECT_EQ(region.lkey(i), region.native(i)->lkey);
        EXPECT_EQ(region.remote(i).rkey, region.native(i)->rkey);
        EXPECT_EQ(region.sge(0, 1, i).lkey, region.lkey(i));
    }
    EXPECT_NE(region.lkey(0), region.lkey(1));
}

TEST_P(AnyInterface, TakesNoPathThatWorksOnSomeOfTheDevicesOnly) {
    const std::array pds{basics_.pd, ProtectionDomain(basics_.context)};
    ASSERT_EQ(softverbs_fail_call("ibv_reg_dmabuf_mr", 2, ENOMEM), 0);
    const auto mapped =
        std::make_shared<FakeExporter>(4096, reinterpret_cast<std::uintptr_t>(host_memory_.data()));
    const Registration region = register_memory(pds, Resolver({mapped}), mapped->allocation.base,
                                                4096, {.paths = {dmabuf, peermem}});
    EXPECT_EQ(region.path(), peermem);
    EXPECT_EQ(region.size(), 2U);
    EXPECT_EQ(region.trail()[0].error, ENOMEM);
    EXPECT_EQ(region.trail()[0].device, "soft0");
    // The one that had worked is gone.
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 2U);
    EXPECT_THAT(testing::record().destroyed, ::testing::Contains("mr").Times(1));
    EXPECT_EQ(mapped->releases, 1U);
}

// Refusals, and what they say

TEST_P(AnyInterface, NeverRegistersDeviceMemoryAsHostMemory) {
    testing::fail_dmabufs(0, EOPNOTSUPP);
    const auto error = refusal({.mapping = MappingKind::standard});
    EXPECT_THAT(error,
                fails_with(function, EOPNOTSUPP, ". dmabuf: ibv_reg_dmabuf_mr on soft0",
                           ". host: register_memory, memory of fake: Operation not permitted "
                           "(EPERM): this is device memory of fake, which is never registered as "
                           "host memory; allow peermem, which registers device addresses"));
    EXPECT_THAT(error, ::testing::Not(fails_with(function, EOPNOTSUPP, "dmabuf_data_direct: ")));
    EXPECT_THAT(registrations(), ::testing::Each(::testing::Field(&testing::Registration::function,
                                                                  "ibv_reg_dmabuf_mr")));
}

/// Matches an error whose trail has one attempt with a dma-buf, and ends without advice.
auto fails_once(int error, const std::string& text) {
    return ::testing::AllOf(
        fails_with(function, error, text),
        fails_with(function, error, "which is never registered as host memory."),
        ::testing::Not(fails_with(function, error, "dmabuf_data_direct")),
        ::testing::Not(fails_with(function, error, "NIC refused")));
}

TEST_P(AnyInterface, NamesAMistakeOfTheCallerOnce) {
    EXPECT_THAT(refusal({.access = Access::remote_write}),
                fails_once(EINVAL, "remote_write needs local_write too"));
    EXPECT_THAT(refusal({.access = Access::local_write | Access::zero_based}),
                fails_once(EINVAL, "a dma-buf cannot be registered with zero_based"));
    EXPECT_THAT(refusal(device_address() + 100, 1000, {.iova = 0}),
                fails_once(EINVAL, "the iova lies 0 bytes into its page and the offset 100 bytes"));
    EXPECT_TRUE(registrations().empty());
    EXPECT_EQ(exporter_->releases, 3U);
}

TEST_P(AnyInterface, NamesARangeThatLeavesTheDmaBufOnce) {
    exporter_->allocation.length = size + 1;
    EXPECT_THAT(refusal(device_address(), size + 1),
                fails_once(EINVAL, "the range ends at byte 65537 and /memfd:"));
    EXPECT_EQ(registrations().size(), 1U);
}

TEST_P(AnyInterface, NamesAWrongDescriptorOnce) {
    const auto external = make_external_exporter();
    const UniqueFd program(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    const AddedRange range =
        external->add(program.get(), {.address = std::uintptr_t{1} << 40U, .length = 4096});
    resolver_ = Resolver({external});
    EXPECT_THAT(refusal(std::uintptr_t{1} << 40U, 4096), fails_once(EINVAL, "is not a dma-buf: "));
    EXPECT_EQ(registrations().size(), 1U);
}

TEST_P(AnyInterface, DoesNotAdvisePeermemForErrorsThatItDoesNotAvoid) {
    testing::fail_dmabufs(0, EBADF);
    EXPECT_THAT(refusal(), fails_once(EBADF, "is not open"));
    testing::fail_dmabufs(EPROTONOSUPPORT);
    EXPECT_THAT(refusal(), fails_once(EPROTONOSUPPORT, "use Linux 5.12 or newer"));
}

TEST_P(AnyInterface, BlamesTheExporterForARangeAtAnotherAddress) {
    exporter_->address_by = -std::uintptr_t{4096};
    constexpr const char* text =
        "the exporter 'fake' exported the bytes at 0x200000001000 instead of those at "
        "0x200000002000: correct the exporter";
    EXPECT_THAT(refusal(device_address() + 8192, 4096), fails_once(EIO, text));
    EXPECT_TRUE(registrations().empty());
    EXPECT_THAT(
        error_of([&] { static_cast<void>(resolver_.export_range(device_address() + 8192, 1)); }),
        fails_with("Exporter::export_range", EIO, text));
}

TEST_F(RegistrationTest, AllowsAnExporterThatAddsOthersToTheResolverWhenItIsQueried) {
    const std::uintptr_t other = device_address() + 2 * size;
    bool added = false;
    exporter_->on_find = [&] {
        for (unsigned i = 0; i < 8 && !added; ++i) {
            resolver_.add(std::make_shared<testing::FakeExporter>(size, other + i * size));
        }
        added = true;
    };
    EXPECT_EQ(register_memory(basics_.pd, resolver_, other, size).path(), dmabuf);
    added = false;
    EXPECT_EQ(resolver_.find(other + size).allocation.base, other + size);
    added = false;
    EXPECT_EQ(register_memory(basics_.pd, resolver_, host_memory_.data(), 64).path(), host);
}

TEST_P(AnyInterface, BlamesTheExporterForAWrongPageOffset) {
    exporter_->offset_by = 8;
    const auto error = refusal(device_address() + 4096, 1000);
    EXPECT_THAT(error, fails_once(EIO,
                                  "export_range() of 'fake' returned offset 4104, whose page "
                                  "offset is not that of the address 0x200000001000"));
    EXPECT_THAT(error, ::testing::Not(fails_with(function, EIO, "choose another iova")));
    EXPECT_TRUE(registrations().empty());
    EXPECT_EQ(exporter_->releases, 1U);
    // The caller can choose an iova that fits the offset of the exporter.
    EXPECT_EQ(refusal(device_address() + 4096, 1000, {.iova = 8}), std::nullopt);
}

TEST_P(AnyInterface, NeverTakesAnAddressForHostMemoryWhenAnExporterDoesNotAnswer) {
    exporter_->find_error = EIO;
    const auto address = reinterpret_cast<std::uintptr_t>(host_memory_.data());
    const auto error = refusal(address, 64);
    EXPECT_THAT(error,
                fails_with(function, EIO, "the memory may belong to fake, whose query failed",
                           "fakePointerGetAttribute, memory of fake"));
    expect_untouched();
}

TEST(FindOverlapping, AsksALimitedNumberOfTimes) {
    const testing::FakeExporter exporter(4096, 4096);
    EXPECT_EQ(exporter.find_overlapping(std::uintptr_t{1} << 40U, std::size_t{1} << 62U),
              std::nullopt);
    EXPECT_GE(exporter.finds, 1U << 20U);
    EXPECT_LE(exporter.finds, (1U << 20U) + 2);
}

TEST_P(AnyInterface, RegistersNoHostMemoryWithMemoryOfADeviceInIt) {
    using enum MemoryKind;
    struct Part {
        std::size_t page;
        MemoryKind kind;
        std::size_t pages = 1;
    };
    struct Row {
        std::vector<Part> parts; // of four pages; the other pages are host memory
        RegistrationPath path;
        int error;
        const char* text;
    };
    const std::vector<Row> rows{
        {{{3, device}}, host, EPERM, "contains device memory of page 3"},
        {{{1, device}}, host, EPERM, "contains device memory of page 1"},
        {{{2, system}}, on_demand, EPERM, "contains system memory of page 2"},
        {{{0, pinned_host}, {1, device}}, host, EPERM, "contains device memory of page 1"},
        {{{0, pinned_host}, {2, managed}}, host, EPERM, "contains managed memory of page 2"},
        {{{0, managed}, {3, device}}, on_demand, EPERM, "contains device memory of page 3"},
        {{{0, pinned_host, 4}, {2, device}}, host, EPERM, "contains device memory of page 2"},
        {{{0, pinned_host, 4}, {0, managed}}, host, EPERM, "is managed memory of page 0"},
        {{{0, managed, 4}, {1, system}}, on_demand, EPERM, "contains system memory of page 1"},
        {{{0, pinned_host}, {3, pinned_host}}, host, 0, ""},
        {{{1, pinned_host}, {2, pinned_host}}, host, 0, ""},
    };
    constexpr std::array<std::string_view, 4> names{"page 0", "page 1", "page 2", "page 3"};
    const auto base = reinterpret_cast<std::uintptr_t>(host_memory_.data());
    for (const Row& row : rows) {
        SCOPED_TRACE(row.text);
        resolver_ = {};
        for (const Part& part : row.parts) {
            const auto exporter =
                std::make_shared<FakeExporter>(part.pages * 4096, base + part.page * 4096);
            exporter->allocation.kind = part.kind;
            exporter->exporter_name = names[part.page];
            resolver_.add(exporter);
        }
        const auto error = refusal(base, host_memory_.size(), {.paths = {row.path}});
        if (row.error == 0) {
            EXPECT_EQ(error, std::nullopt);
        } else {
            EXPECT_THAT(error, fails_with(function, row.error, row.text));
            EXPECT_TRUE(registrations().empty());
        }
        if (row.parts.front().page != 0 && row.path == host && row.error != 0) {
            // With the default paths, that no exporter knows the first byte is not the reason.
            EXPECT_THAT(refusal(base, host_memory_.size(), {}),
                        fails_with(function, row.error, row.text));
        }
    }
}

TEST_P(AnyInterface, RegistersNoHostMemoryWithMemoryOfADeviceBehindOtherMemoryOfItsExporter) {
    const auto external = make_external_exporter();
    const auto base = reinterpret_cast<std::uintptr_t>(host_memory_.data());
    std::vector<AddedRange> ranges;
    for (const MemoryKind kind : {MemoryKind::pinned_host, MemoryKind::device}) {
        ranges.push_back(external->add(
            exporter_->fd(),
            {.address = base + 4096 * (ranges.size() + 1), .length = 4096, .kind = kind}));
    }
    resolver_ = Resolver({external});
    EXPECT_THAT(refusal(base, host_memory_.size(), {.paths = {host}}),
                fails_with(function, EPERM, "contains device memory of external"));
    EXPECT_TRUE(registrations().empty());
}

// As after cuMemHostRegister() of memory that another driver owns.
TEST_P(AnyInterface, PrefersTheExporterThatDoesNotReportPinnedHostMemory) {
    const auto pinned = std::make_shared<FakeExporter>(size);
    pinned->allocation.kind = MemoryKind::pinned_host;
    pinned->standard_error = EOPNOTSUPP;
    exporter_->exporter_name = "owner";
    for (const Resolver& both : {Resolver({pinned, exporter_}), Resolver({exporter_, pinned})}) {
        resolver_ = both;
        const Registration region = device();
        EXPECT_EQ(region.path(), dmabuf);
        EXPECT_EQ(region.exporter(), "owner");
        EXPECT_THAT(errors_of(region.trail()), ElementsAre(0));
        EXPECT_EQ(device({.device_memory = true}).path(), dmabuf);
        EXPECT_THAT(refusal({.paths = {host}}),
                    fails_with(function, EPERM, "this is device memory of owner"));
        EXPECT_EQ(resolver_.find(device_address()).exporter, exporter_);
    }
    EXPECT_TRUE(pinned->exports.empty());
}

// A driver that does not export pinned host memory is not the reason why ibv_reg_mr(3) fails.
TEST_P(AnyInterface, FailsForHostMemoryWithTheErrnoOfVerbs) {
    exporter_->allocation = {.base = reinterpret_cast<std::uintptr_t>(host_memory_.data()),
                             .length = host_memory_.size(),
                             .kind = MemoryKind::pinned_host};
    exporter_->standard_error = EOPNOTSUPP;
    testing::fail_next("ibv_reg_mr", ENOMEM);
    EXPECT_THAT(refusal(exporter_->allocation.base, host_memory_.size(), {}),
                fails_with(function, ENOMEM, "dmabuf: ", "(EOPNOTSUPP)", "host: ibv_reg_mr"));
}

TEST_P(AnyInterface, NeverTakesPinnedMemoryForHostMemoryWhenAnotherExporterDoesNotAnswer) {
    const auto pinned = std::make_shared<FakeExporter>(
        host_memory_.size(), reinterpret_cast<std::uintptr_t>(host_memory_.data()));
    pinned->allocation.kind = MemoryKind::pinned_host;
    exporter_->find_error = EIO;
    for (const Resolver& both : {Resolver({pinned, exporter_}), Resolver({exporter_, pinned})}) {
        resolver_ = both;
        EXPECT_THAT(refusal(pinned->allocation.base, host_memory_.size(), {.paths = {host}}),
                    fails_with(function, EIO, "the memory may belong to fake, whose query failed"));
    }
    expect_untouched();
}

TEST_P(AnyInterface, ExportsFromTheNextExporterThatKnowsTheMemory) {
    const auto other = std::make_shared<FakeExporter>(size);
    other->exporter_name = "other";
    exporter_->standard_error = EOPNOTSUPP;
    exporter_->pcie_error = EOPNOTSUPP;
    resolver_.add(other);
    Registration region = device();
    EXPECT_EQ(region.path(), dmabuf);
    EXPECT_EQ(region.exporter(), "other");
    EXPECT_EQ(region.trail()[0].exporter, "fake");
    EXPECT_EQ(errors_of(region.trail()).back(), 0);
    exporter_->freed = true;
    EXPECT_EQ(region.verify(), RegistrationState::registered);
    other->freed = true;
    EXPECT_EQ(region.verify(), RegistrationState::revoked);
}

TEST_P(AnyInterface, RegistersOnAllDevicesWithTheNextExporterThatKnowsTheMemory) {
    const auto other = std::make_shared<FakeExporter>(size);
    other->exporter_name = "other";
    resolver_.add(other);
    const std::array pds{basics_.pd, ProtectionDomain(basics_.context)};
    ASSERT_EQ(softverbs_fail_call("ibv_reg_dmabuf_mr", 2, ENOMEM), 0);
    const Registration region = register_memory(pds, resolver_, device_address(), size);
    EXPECT_EQ(region.exporter(), "other");
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 2U);
    for (std::size_t i = 0; i < pds.size(); ++i) {
        EXPECT_EQ(region.protection_domain(i), pds[i]);
    }
}

TEST_P(AnyInterface, AsksNoOtherExporterForMemoryThatOneExports) {
    const auto other = std::make_shared<FakeExporter>(size);
    resolver_.add(other);
    EXPECT_EQ(device().path(), dmabuf);
    EXPECT_EQ(exporter_->finds, 1U);
    EXPECT_EQ(other->finds, 0U);
}

TEST_P(AnyInterface, BlamesTheExporterForAnAllocationWithoutTheAddress) {
    const auto host_address = reinterpret_cast<std::uintptr_t>(host_memory_.data());
    exporter_->allocation = {.base = host_address, .length = 100, .kind = MemoryKind::pinned_host};
    exporter_->find_anywhere = true;
    EXPECT_THAT(refusal(host_address + 200, 100),
                fails_with(function, EIO, "'fake' returned an allocation"));
    expect_untouched();
}

TEST_P(AnyInterface, SaysWhatTheExporterSaysOfARangeOverTwoAllocations) {
    const auto error = refusal(device_address() + 4096, size);
    EXPECT_THAT(error, fails_with(function, ERANGE, "the range leaves the allocation"));
    EXPECT_TRUE(registrations().empty());
    EXPECT_EQ(exporter_->releases, 0U);
}

TEST_P(AnyInterface, RefusesAnExportThatIsTooShort) {
    exporter_->short_by = 4096;
    EXPECT_THAT(refusal({.paths = {dmabuf}}),
                fails_with(function, EIO, "only 61440 of 65536 bytes were exported"));
    EXPECT_EQ(exporter_->releases, 1U);
    EXPECT_TRUE(registrations().empty());
}

TEST_P(AnyInterface, NamesEveryExporterAskedForMemoryThatWasFreed) {
    void* const gone =
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::munmap(gone, 4096);
    const auto error = refusal(reinterpret_cast<std::uintptr_t>(gone), 4096);
    EXPECT_THAT(error, fails_with(function, EFAULT, "of these exporters: fake",
                                  "these pages cannot be pinned"));
}

TEST_P(AnyInterface, HoldsTheCallerToAPromiseOfDeviceMemory) {
    const auto memfd = make_memfd_exporter();
    const Buffer buffer = memfd->allocate(size);
    const auto promised = [&](std::uintptr_t address) {
        return error_of([&] {
            static_cast<void>(register_memory(basics_.pd, Resolver({memfd}), address, 4096,
                                              {.device_memory = true}));
        });
    };
    EXPECT_THAT(promised(buffer.address()),
                fails_with(function, EFAULT, "device_memory is set, but this is system memory"));
    EXPECT_THAT(promised(reinterpret_cast<std::uintptr_t>(host_memory_.data())),
                fails_with(function, EFAULT,
                           "device memory; check the pointer, or do not set device_memory"));
    EXPECT_THAT(refusal(reinterpret_cast<std::uintptr_t>(host_memory_.data()), 64,
                        {.paths = {dmabuf, on_demand}, .device_memory = true}),
                fails_with(function, EFAULT, "no exporter reports this as device memory"));
    EXPECT_TRUE(registrations().empty());
    EXPECT_EQ(device({.device_memory = true}).path(), dmabuf);
}

TEST_P(AnyInterface, TakesPeermemForDeviceAddressesOnly) {
    const auto error =
        refusal(reinterpret_cast<std::uintptr_t>(host_memory_.data()), 64, {.paths = {peermem}});
    EXPECT_THAT(error, fails_with(function, EFAULT, "no exporter reports this as device memory"));
    exporter_->allocation.kind = MemoryKind::managed;
    EXPECT_THAT(refusal({.paths = {peermem}}),
                fails_with(function, EFAULT, "this is managed memory, not device memory"));
    // The end of the range is host memory, which may follow the device memory.
    exporter_->allocation = {.base = reinterpret_cast<std::uintptr_t>(host_memory_.data()),
                             .length = 4096};
    EXPECT_THAT(refusal(exporter_->allocation.base + 96, 4096, {.paths = {peermem}}),
                fails_with(function, ERANGE, "only the first 4000 bytes are in the allocation"));
    EXPECT_TRUE(registrations().empty());
}

TEST_P(AnyInterface, SaysWhatPeermemLacks) {
    // Nothing is mapped at the fake's address, as nothing is at a GPU's.
    const auto error = refusal({.paths = {peermem}});
    EXPECT_THAT(error,
                fails_with(function, EFAULT, "peermem: ibv_reg_mr on soft0, memory of fake"));
    if (detail::peer_memory_clients().empty()) {
        EXPECT_THAT(error, fails_with(function, EFAULT, "neither /sys/module/nvidia_peermem nor",
                                      "modprobe nvidia_peermem"));
    }
}

TEST_F(RegistrationTest, HasTheErrnoOfTheFirstThatADriverOrVerbsAnswered) {
    testing::fail_dmabufs(EPROTONOSUPPORT);
    EXPECT_THAT(
        refusal({.paths = {host, dmabuf, peermem}}),
        fails_with(function, EPROTONOSUPPORT, "65536 bytes at 0x200000000000 could not be"));
}

TEST_P(AnyInterface, TriesNoOtherMappingOfWhatIsNoDeviceMemory) {
    testing::fail_dmabufs(0, EOPNOTSUPP);
    exporter_->allocation.kind = MemoryKind::system;
    EXPECT_THAT(refusal({.paths = {dmabuf}}), fails_with(function, EOPNOTSUPP, "soft0 can import"));
    EXPECT_THAT(exporter_->exports, ElementsAre(MappingKind::standard));
}

TEST_F(RegistrationTest, SaysThatADeviceHasNoDataDirect) {
    for (const int error : {EOPNOTSUPP, EINVAL, 524}) {
        testing::fail_dmabufs(0, error);
        Trail trail;
        EXPECT_THAT(refusal({.paths = {dmabuf}, .trail = &trail}),
                    fails_with(function, error, "has no data-direct function"));
        EXPECT_THAT(paths_of(trail), ElementsAre(dmabuf, dmabuf_data_direct));
        // As libmlx5 answers for a device of another driver.
        EXPECT_THAT(errors_of(trail), ElementsAre(error, EOPNOTSUPP));
    }
    testing::fail_dmabufs(0, ENOMEM);
    Trail trail;
    EXPECT_TRUE(refusal({.paths = {dmabuf}, .trail = &trail}));
    EXPECT_THAT(paths_of(trail), ElementsAre(dmabuf));
    testing::fail_dmabufs(0, EINVAL);
    EXPECT_TRUE(refusal({.paths = {dmabuf}, .mapping = MappingKind::standard, .trail = &trail}));
    EXPECT_THAT(paths_of(trail), ElementsAre(dmabuf)) << "a mapping that is asked for has no other";
}

// On-demand paging

/// Managed memory of a fake driver, at addresses that the CPU can use as well.
class ManagedMemory : public AnyInterface {
  protected:
    ManagedMemory() {
        managed_->allocation.kind = MemoryKind::managed;
        managed_->standard_error = EOPNOTSUPP;
    }
    [[nodiscard]] Registration make(const RegistrationOptions& options = {}) const {
        return register_memory(basics_.pd, Resolver({managed_}), host_memory_.data(),
                               host_memory_.size(), options);
    }

    std::shared_ptr<FakeExporter> managed_ = std::make_shared<FakeExporter>(
        host_memory_.size(), reinterpret_cast<std::uintptr_t>(host_memory_.data()));
};

INSTANTIATE_TEST_SUITE_P(By, ManagedMemory, interfaces, name_of);

TEST_P(ManagedMemory, IsRegisteredOnDemandAndTheTrailSaysSo) {
    const Registration region = make({.access = writable});
    EXPECT_EQ(region.path(), on_demand);
    EXPECT_EQ(to_string(region.trail()),
              "dmabuf: fakeExport, memory of fake: Operation not supported (EOPNOTSUPP): it does "
              "not map that way. on_demand: ibv_reg_mr, memory of fake: registered.");
    EXPECT_EQ(registrations().back().access, static_cast<unsigned>(writable | Access::on_demand));
    EXPECT_EQ(region.access(), writable);
}

TEST_P(ManagedMemory, IsNeverPinned) {
    EXPECT_THAT(error_of([&] { static_cast<void>(make({.paths = {host}})); }),
                fails_with(function, EPERM, "allow on_demand, which does not pin it"));
    EXPECT_TRUE(registrations().empty());
}

TEST_P(ManagedMemory, NeedsANicWithOnDemandPaging) {
    testing::change_device([](ibv_device_attr_ex& attributes) { attributes.odp_caps = {}; });
    EXPECT_THAT(error_of([&] { static_cast<void>(make()); }),
                fails_with(function, EOPNOTSUPP, "soft0 has no on-demand paging"));
    EXPECT_TRUE(registrations().empty());
}

TEST_P(ManagedMemory, ThatTheKernelCannotPageIsRefusedWhenItIsRegistered) {
    // No page is mapped at the address of the fake device.
    exporter_->allocation.kind = MemoryKind::managed;
    EXPECT_THAT(refusal({.paths = {on_demand}}),
                fails_with(function, EFAULT, "the first page cannot be faulted for the NIC"));
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 0U);
}

TEST_P(AnyInterface, HostMemoryIsRegisteredOnDemandWhereThatIsListed) {
    const Registration region =
        register_memory(basics_.pd, resolver_, host_memory_.data(), 4096, {.paths = {on_demand}});
    EXPECT_EQ(region.path(), on_demand);
    EXPECT_THAT(refusal({.paths = {on_demand}}),
                fails_with(function, EPERM, "this is device memory of fake"));
}

// Bad input

TEST_P(AnyInterface, RefusesOptionsThatContradictEachOther) {
    EXPECT_THAT(refusal({.paths = {dmabuf, host}, .device_memory = true}),
                fails_with(function, EINVAL, "device_memory is set, and the path host is listed"));
    EXPECT_THAT(refusal({.paths = {host, peermem}, .mapping = MappingKind::standard}),
                fails_with(function, EINVAL, "a mapping is set, but no dma-buf path is listed"));
    EXPECT_THAT(error_of([] {
                    static_cast<void>(PathOrder{host, dmabuf, host});
                }),
                fails_with("PathOrder", EINVAL, "the path host is listed twice"));
    EXPECT_EQ(exporter_->finds, 0U);
    expect_untouched();
}

TEST_P(AnyInterface, RefusesWhatIsNoRange) {
    EXPECT_THAT(refusal(device_address(), 0), fails_with(function, EINVAL, "a length of 0"));
    EXPECT_THAT(refusal(~std::uintptr_t{0} - 10, 100),
                fails_with(function, EINVAL, "100 bytes at 0xfffffffffffffff5 exceed"));
    EXPECT_THAT(refusal({.iova = ~std::uint64_t{0} - 10}),
                fails_with(function, EINVAL, "iova 0xfffffffffffffff5 + length 65536 overflows"));
    EXPECT_THAT(error_of([&] {
                    static_cast<void>(register_memory(std::span<const ProtectionDomain>(),
                                                      resolver_, device_address(), size));
                }),
                fails_with(function, EINVAL, "no protection domain"));
    expect_untouched();
}

// Everything that fails gives back what came before

TEST_P(AnyInterface, LeavesNothingBehindWhicheverCallFails) {
    const std::array pds{basics_.pd, ProtectionDomain(basics_.context)};
    const std::size_t live = softverbs_live(SOFTVERBS_KINDS);
    const auto descriptors = testing::open_descriptors();
    for (unsigned n = 1;; ++n) {
        ASSERT_LE(n, 8U) << "it never succeeds";
        testing::fail_call(n, EREMOTEIO);
        std::optional<Registration> region;
        const auto error = error_of(
            [&] { region.emplace(register_memory(pds, resolver_, device_address(), size)); });
        if (!testing::all_failed()) {
            EXPECT_EQ(n, 3U) << "two registrations, and nothing else that can fail";
            break;
        }
        EXPECT_THAT(error, fails_with(function, EREMOTEIO, "ibv_reg_dmabuf_mr on soft0"));
        EXPECT_EQ(softverbs_live(SOFTVERBS_KINDS), live);
        EXPECT_EQ(testing::open_descriptors(), descriptors);
        EXPECT_EQ(exporter_->releases, n);
    }
    softverbs_clear_faults();
}

// Profiles of softverbs

struct Profile {
    const char* name;
    int error;
    const char* text;
    /// Whether docs/registration.md shows this trail.
    bool documented;
};

class RegistrationProfiles : public SoftverbsTest, public ::testing::WithParamInterface<Profile> {
  protected:
    RegistrationProfiles() { EXPECT_EQ(softverbs_reset(GetParam().name, 1), 0); }
};

/// The documentation, with single spaces for whatever white space it has.
std::string documentation() {
    std::ifstream file(RDMABUF_REGISTRATION_DOC);
    std::string text;
    for (std::string word; file >> word;) {
        text.append(text.empty() ? "" : " ").append(word);
    }
    return text;
}

TEST_P(RegistrationProfiles, TellsWhyDmaBufsCannotBeRegistered) {
    const Basics basics;
    const auto memfd = make_memfd_exporter();
    const Buffer buffer = memfd->allocate(size);
    const std::size_t live = softverbs_live(SOFTVERBS_KINDS);
    const auto descriptors = testing::open_descriptors();
    Trail trail;
    EXPECT_THAT(
        error_of([&] {
            static_cast<void>(register_memory(basics.pd, Resolver({memfd}), buffer.address(), size,
                                              {.access = full_access, .trail = &trail}));
        }),
        fails_with(function, GetParam().error, GetParam().text));
    if (GetParam().documented) {
        EXPECT_THAT(documentation(), HasSubstr("a buffer: " + to_string(trail)));
    }
    EXPECT_EQ(softverbs_live(SOFTVERBS_KINDS), live);
    EXPECT_EQ(testing::open_descriptors(), descriptors);

    std::array<std::byte, 64> host_memory{};
    EXPECT_EQ(register_memory(basics.pd, Resolver({memfd}), host_memory.data(), 64).path(), host);
}

INSTANTIATE_TEST_SUITE_P(
    Profiles, RegistrationProfiles,
    ::testing::Values(Profile{"old-kernel", EPROTONOSUPPORT, "use Linux 5.12 or newer", true},
                      Profile{"rxe", EOPNOTSUPP, "the driver of soft0 or its rdma-core", false},
                      // It imports, and refuses atomics on what it imports.
                      Profile{"efa", EOPNOTSUPP, "try without remote_atomic", true}),
    [](const auto& profile) {
        std::string name = profile.param.name;
        std::erase(name, '-');
        return name;
    });

} // namespace
} // namespace rdmabuf

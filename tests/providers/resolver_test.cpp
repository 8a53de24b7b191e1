// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>

#include <cerrno>
#include <utility>

#include <gmock/gmock.h>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/external.hpp>
#include <rdmabuf/resolver.hpp>

#include "fails_with.hpp"
#include "fake_kernel.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// An exporter of one range of addresses that only it has made up.
class MadeUp : public Exporter {
  public:
    MadeUp(std::string name, Allocation allocation, Availability found = Availability::yes())
        : name_(std::move(name)), allocation_(std::move(allocation)), found_(std::move(found)) {}

    [[nodiscard]] std::string_view name() const noexcept override { return name_; }
    [[nodiscard]] Availability availability() const override {
        ++availability_calls;
        return found_;
    }
    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t address) const override {
        ++find_calls;
        if (find_error != 0) {
            throw Error(find_error, "madeUpFind", "made up");
        }
        return address - allocation_.base < allocation_.length ? std::optional(allocation_)
                                                               : std::nullopt;
    }
    [[nodiscard]] ExportedRange export_range(std::uintptr_t address, std::size_t length,
                                             MappingKind mapping) const override {
        last_mapping = mapping;
        return {name_, UniqueFd(), address - allocation_.base, length, address};
    }

    mutable MappingKind last_mapping = MappingKind::standard;
    mutable unsigned availability_calls = 0;
    mutable unsigned find_calls = 0;
    int find_error = 0;

  private:
    std::string name_;
    Allocation allocation_;
    Availability found_;
};

std::shared_ptr<MadeUp> made_up(std::string name, std::uintptr_t base, std::size_t length) {
    return std::make_shared<MadeUp>(std::move(name), Allocation{.base = base, .length = length});
}

TEST(Exporter, AsksOnlySoOftenForAllocationsInARange) {
    constexpr std::uintptr_t base = std::uintptr_t{1} << 40U;
    constexpr auto unit = std::size_t{2} << 20U;
    struct Row {
        std::size_t length;
        std::size_t found; // what an allocation needs to be found anywhere
        unsigned most;
    };
    for (const auto& [length, found, most] :
         {Row{1, 1, 1}, Row{100, 100, 2}, Row{16 * page_size(), page_size(), 17},
          Row{unit, unit / 16, 17}, Row{1024 * unit, unit, 1025}}) {
        for (const std::size_t offset : {std::size_t{0}, (length - found) / 2, length - found}) {
            const auto exporter = made_up("a", base + offset, found);
            EXPECT_TRUE(exporter->find_overlapping(base, length)) << length << ' ' << offset;
            EXPECT_FALSE(exporter->find_overlapping(base / 2, length));
            EXPECT_LE(exporter->find_calls, 2 * most) << length;
        }
    }
}

TEST(Resolver, AsksInOrder) {
    const auto first = made_up("first", 0x1000, 0x1000);
    const auto second = made_up("second", 0x1000, 0x3000);
    Resolver resolver({first});
    resolver.add(second);
    EXPECT_EQ(resolver.find(0x1fff).exporter, first);
    EXPECT_EQ(resolver.find(0x2000).exporter, second);
    EXPECT_EQ(resolver.exporters().size(), 2U);
}

TEST(Resolver, AsksFirstForMemoryThatTheProgramDeclared) {
    const auto driver = made_up("driver", 0x1000, 0x1000);
    const auto first = make_external_exporter();
    const auto second = make_external_exporter();
    Resolver added({driver});
    added.add(first);
    added.add(second);
    for (const Resolver& resolver : {added, Resolver({first, driver, second})}) {
        EXPECT_THAT(resolver.exporters(), ::testing::ElementsAre(first, second, driver));
    }
}

TEST(Resolver, TakesPinnedHostMemoryForThatOfAnotherExporter) {
    const auto pinned = std::make_shared<MadeUp>(
        "pinned", Allocation{.base = 0x1000, .length = 0x2000, .kind = MemoryKind::pinned_host});
    const auto owner = made_up("owner", 0x1000, 0x1000);
    const Resolver resolver({pinned, owner});
    EXPECT_EQ(resolver.find(0x1000).exporter, owner);
    EXPECT_EQ(resolver.find(0x2000).exporter, pinned);
}

TEST(Resolver, ExportsFromWhoeverKnowsTheAddress) {
    const auto other = made_up("other", 0, 0);
    const auto owner = made_up("owner", 0x1000, 0x1000);
    const Resolver resolver({other, owner});
    const ExportedRange range = resolver.export_range(0x1010, 4, MappingKind::pcie);
    EXPECT_EQ(range.exporter(), "owner");
    EXPECT_EQ(range.offset(), 0x10U);
    EXPECT_EQ(owner->last_mapping, MappingKind::pcie);
}

TEST(Resolver, NamesTheExportersThatDoNotKnowAnAddressAndAsksNothingElse) {
    const auto absent =
        std::make_shared<MadeUp>("absent", Allocation{}, Availability::no("no driver", "load it"));
    const Resolver resolver({made_up("present", 0, 0), absent});
    EXPECT_FALSE(resolver.try_find(0xabcd));
    const auto error = error_of([&] { (void)resolver.find(0xabcd); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EFAULT);
    EXPECT_STREQ(error->function(), "Resolver::find");
    EXPECT_EQ(
        error->hint(),
        "no exporter knows the address 0xabcd, of these exporters: present, absent. It is host "
        "memory, or it was freed, or this process has not initialised its driver (a child of "
        "fork(2) cannot use that of its parent)");
    const auto on_export = error_of([&] { (void)resolver.export_range(0xabcd, 1); });
    ASSERT_TRUE(on_export);
    EXPECT_EQ(on_export->hint(), error->hint());
    EXPECT_EQ(absent->availability_calls, 0U) << "that initialises drivers";
}

TEST(Resolver, DoesNotCallMemoryUnknownIfAnExporterCannotAnswer) {
    const auto broken = made_up("broken", 0, 0);
    broken->find_error = EIO;
    const Resolver resolver({broken, made_up("other", 0, 0)});
    for (const auto& error : {error_of([&] { (void)resolver.try_find(0xabcd); }),
                              error_of([&] { (void)resolver.find(0xabcd); })}) {
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), EIO);
        EXPECT_EQ(error->hint(),
                  "broken cannot determine if it owns the memory at 0xabcd: made up");
    }
}

TEST(Resolver, LoadsNoDriverToFindTheOwnerOfHostMemory) {
    const Resolver resolver = Resolver::system();
    const int local = 0;
    const auto address = reinterpret_cast<std::uintptr_t>(&local);
    EXPECT_FALSE(resolver.try_find(address));
    EXPECT_TRUE(error_of([&] { (void)resolver.find(address); }));
    for (const char* const driver :
         {"libcuda.so.1", "libze_loader.so.1", "libhsa-runtime64.so.1", "libnrt.so.1"}) {
        EXPECT_EQ(::dlopen(driver, RTLD_LAZY | RTLD_NOLOAD), nullptr) << driver;
    }
}

TEST(Resolver, TellsThatItHasNobodyToAsk) {
    EXPECT_THAT(error_of([] { (void)Resolver().find(1); }),
                fails_with(EFAULT, "the resolver has no exporters"));
}

TEST(Resolver, FindsExportersByName) {
    const auto one = made_up("one", 0, 0);
    const Resolver resolver({one, made_up("two", 0, 0)});
    EXPECT_EQ(resolver.exporter("one"), one);
    const auto error = error_of([&] { (void)resolver.exporter("three"); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENOENT);
    EXPECT_EQ(error->hint(), "no exporter is called 'three'; there are: one, two");
    const auto empty = error_of([] { (void)Resolver().exporter("one"); });
    ASSERT_TRUE(empty);
    EXPECT_THAT(empty->hint(), HasSubstr("there are: none"));
}

TEST(Resolver, GivesOutAllocatorsOnly) {
    Resolver resolver = Resolver::system();
    resolver.add(made_up("exports-only", 0, 0));
    const auto error = error_of([&] { (void)resolver.allocator("exports-only"); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENOTSUP);
    EXPECT_THAT(error->hint(),
                AllOf(HasSubstr("'exports-only'"), HasSubstr("drm, dma_heap, udmabuf")));
    EXPECT_THAT(error_of([&] { (void)resolver.allocator("nobody"); }), fails_with(ENOENT));
}

TEST(Resolver, RefusesAnExporterWithoutANameAndOneThatItHas) {
    const auto one = made_up("one", 0, 0);
    Resolver resolver({one});
    EXPECT_THAT(error_of([&] { resolver.add(one); }),
                fails_with("Resolver", EINVAL, "the exporter 'one' is in the list already"));
    EXPECT_THAT(error_of([&] { resolver.add(made_up("", 0, 0)); }),
                fails_with("Resolver", EINVAL, "the name of an exporter is empty"));
    resolver.add(made_up("one", 0, 0));
    EXPECT_EQ(resolver.exporters().size(), 2U);
    EXPECT_EQ(resolver.exporter("one"), one);
}

TEST(Resolver, RefusesANullExporter) {
    Resolver resolver;
    for (const auto& error :
         {error_of([&] { resolver.add(nullptr); }), error_of([] { (void)Resolver({nullptr}); })}) {
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), EINVAL);
    }
}

TEST(Resolver, OfTheSystemHasEveryExporterAvailableOrNot) {
    FakeKernel kernel;
    kernel.add_heap("system");
    const Resolver resolver = Resolver::system();
    const Buffer buffer = resolver.allocator("dma_heap")->allocate(1);
    EXPECT_EQ(resolver.find(buffer.address()).exporter->name(), "dma_heap");

    const auto error = error_of([&] { (void)resolver.find(0x1234); });
    ASSERT_TRUE(error);
    EXPECT_THAT(error->hint(),
                AllOf(StartsWith("no exporter knows the address 0x1234, of these exporters: "),
                      HasSubstr("drm, dma_heap, udmabuf")));
}

} // namespace
} // namespace rdmabuf::testing

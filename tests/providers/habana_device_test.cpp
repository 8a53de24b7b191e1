// SPDX-License-Identifier: BSD-3-Clause
// What only Habana has: mappings that contain the memory, and a device that the program opens.
#include <tuple>

#include <rdmabuf/providers/habana.hpp>

#include "drivers/driver_fixture.hpp"
#include "fake_habana.hpp"

namespace rdmabuf::testing {
namespace {

using detail::habana::DeviceName;
using ::testing::HasSubstr;

constexpr const char* address_call = "hlthunk_get_pci_bus_id_from_fd";
constexpr const char* mapping_call = "hlthunk_device_mapped_memory_export_dmabuf_fd";

/// Makes an exporter for a device that the program has opened.
std::shared_ptr<HabanaExporter> exporter_of(DeviceName name) {
    return make_habana_exporter({.fd = fake_habana::open(name)});
}

std::optional<Error> refusal_of(HabanaExporter& exporter, const HabanaMemory& memory) {
    return error_of([&] { (void)exporter.add(memory); });
}

using HabanaAdding = DriverTest;
using HabanaDevice = DriverTest;

TEST_F(HabanaAdding, ExportsAMappingFromItsStart) {
    const auto exporter = exporter_of(DeviceName::gaudi2);
    const std::uint64_t pool = make(fake::Kind::device, 8 * page_size());
    const auto expected = put(pool, 8 * page_size(), 3);
    const std::size_t begin = 2 * page_size() + 128;
    const AddedRange added =
        exporter->add({.address = pool + begin, .length = page_size(), .mapping = pool});
    EXPECT_EQ(fake::recorded(mapping_call), 4 * page_size());
    EXPECT_FALSE(exporter->find(pool));
    const ExportedRange range = exporter->export_range(pool + begin + 1, 50);
    EXPECT_EQ(range.offset(), begin + 1);
    EXPECT_EQ(bytes_of(range), part(expected, begin + 1, 50));
}

TEST_F(HabanaAdding, ReportsWhyTheDriverRefuses) {
    const auto exporter = exporter_of(DeviceName::gaudi2);
    const std::uint64_t address = make(fake::Kind::device, 2 * page_size());
    EXPECT_THAT(refusal_of(*exporter, {.address = address, .length = 1, .mapping = address + 1}),
                fails_with(EINVAL, "the mapping begins after the start of the memory"));
    EXPECT_EQ(fake::calls(mapping_call), 0U);
    // Not the start of a mapping, and memory behind the end of a mapping.
    for (const HabanaMemory& memory :
         {HabanaMemory{.address = address + page_size(), .length = page_size()},
          HabanaMemory{.address = address, .length = 3 * page_size()}}) {
        EXPECT_THAT(refusal_of(*exporter, memory),
                    fails_with(mapping_call, EINVAL, std::to_string(memory.length) + " bytes at 0x",
                               "hlthunk_device_memory_map()"));
        EXPECT_FALSE(exporter->find(memory.address));
    }
    EXPECT_THAT(refusal_of(*make_habana_exporter(), {.address = 4096, .length = 1}),
                fails_with(ENODEV, "HabanaOptions::fd"));
}

TEST_F(HabanaDevice, OfAnyProcessIsListed) {
    EXPECT_EQ(make_habana_exporter()->availability().reason,
              "libhl-thunk.so, 0000:33:00.0, 0000:33:00.0");
}

TEST_F(HabanaDevice, IsAvailableWithoutItsPciAddress) {
    fake::reset(1);
    fake::fail(address_call, -ENODEV, 1, 2);
    const Availability any = make_habana_exporter()->availability();
    EXPECT_TRUE(any);
    EXPECT_EQ(any.reason, "libhl-thunk.so, a device whose PCI address is unknown");
    const Availability opened = exporter_of(DeviceName::gaudi2)->availability();
    EXPECT_TRUE(opened);
    EXPECT_EQ(opened.reason, "libhl-thunk.so, the program's Gaudi");
}

TEST_F(HabanaDevice, MustBeOpenAndAGaudi2OrNewer) {
    EXPECT_TRUE(exporter_of(static_cast<DeviceName>(7))->availability()) << "a newer device";
    const int goya = fake_habana::open(DeviceName::goya);
    const int gaudi1 = fake_habana::open(DeviceName::gaudi);
    const int other_gaudi1 = fake_habana::open(DeviceName::gaudi_hl2000m);
    for (const auto& [fd, error, text] :
         {std::tuple{1'000'000, EBADF, "is not open"},
          std::tuple{goya, ENODEV, "is not that of a Gaudi 2 or newer"},
          std::tuple{gaudi1, ENODEV, "is not that of a Gaudi 2 or newer"},
          std::tuple{other_gaudi1, ENODEV, "is not that of a Gaudi 2 or newer"},
          std::tuple{0, ENODEV, "descriptor 0 is not that of a Gaudi 2"}}) {
        const auto exporter = make_habana_exporter({.fd = fd});
        const Availability found = exporter->availability();
        EXPECT_FALSE(found);
        EXPECT_THAT(found.reason, HasSubstr(text));
        EXPECT_NE(found.remedy, "");
        EXPECT_THAT(refusal_of(*exporter, {.address = 4096, .length = 1}), fails_with(error));
    }
}

} // namespace
} // namespace rdmabuf::testing

// SPDX-License-Identifier: BSD-3-Clause
// The paths that newer rdma-core has. This program defines its functions itself, where the library
// looks for them at run time; they register by the older ones. That proves what the library calls
// with which arguments, and what it makes of refusals; not what a NIC does.
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <rdmabuf/chunked_region.hpp>
#include <rdmabuf/dma_handle.hpp>
#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/registration_cache.hpp>
#include <rdmabuf/topology.hpp>

#include "device/verbs_extensions.hpp"
#include "registration_fixture.hpp"
#include "sysfs_tree.hpp"

namespace {

using rdmabuf::detail::DmahInitAttr;
using rdmabuf::detail::MrInitAttr;

struct DataDirectCall {
    std::uint64_t offset;
    std::size_t length;
    std::uint64_t iova;
    int fd;
    int access;
    int mlx5_access;
};

/// What was called, and what is to fail, until the next test.
struct Extensions {
    std::vector<DataDirectCall> data_direct;
    int data_direct_error = 0;
    /// The device that has a data-direct function; empty if none has.
    std::string data_direct_device;
    std::vector<MrInitAttr> reg_mr_ex;
    int reg_mr_ex_error = 0;
    std::vector<DmahInitAttr> alloc_dmah;
    int alloc_dmah_error = 0;
    int dealloc_dmah_error = 0;
    unsigned live_dmahs = 0;
};
Extensions extensions;

template <class T>
T* refuse(int error) {
    errno = error;
    return nullptr;
}

} // namespace

// As in rdma-core.
struct ibv_dmah {
    ibv_context* context;
};

extern "C" {

ibv_mr* mlx5dv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length,
                             std::uint64_t iova, int fd, int access, int mlx5_access) {
    extensions.data_direct.push_back({offset, length, iova, fd, access, mlx5_access});
    return extensions.data_direct_error != 0
               ? refuse<ibv_mr>(extensions.data_direct_error)
               : ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access);
}

int mlx5dv_get_data_direct_sysfs_path(ibv_context* context, char* path, std::size_t size) {
    if (extensions.data_direct_device != ibv_get_device_name(context->device)) {
        return ENODEV;
    }
    std::snprintf(path, size, "/sys/devices/data_direct");
    return 0;
}

ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, MrInitAttr* attributes) {
    extensions.reg_mr_ex.push_back(*attributes);
    if (extensions.reg_mr_ex_error != 0) {
        return refuse<ibv_mr>(extensions.reg_mr_ex_error);
    }
    return (attributes->comp_mask & rdmabuf::detail::mr_fd) != 0
               ? ibv_reg_dmabuf_mr(pd, attributes->fd_offset, attributes->length, attributes->iova,
                                   attributes->fd, attributes->access)
               : ibv_reg_mr_iova2(pd, attributes->addr, attributes->length, attributes->iova,
                                  static_cast<unsigned>(attributes->access));
}

ibv_dmah* ibv_alloc_dmah(ibv_context* context, DmahInitAttr* attributes) {
    extensions.alloc_dmah.push_back(*attributes);
    if (extensions.alloc_dmah_error != 0) {
        return refuse<ibv_dmah>(extensions.alloc_dmah_error);
    }
    ++extensions.live_dmahs;
    return new ibv_dmah{context};
}

int ibv_dealloc_dmah(ibv_dmah* handle) {
    if (extensions.dealloc_dmah_error != 0) {
        return extensions.dealloc_dmah_error;
    }
    --extensions.live_dmahs;
    delete handle;
    return 0;
}

} // extern "C"

namespace rdmabuf {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using testing::fails_with;
using enum RegistrationPath;

constexpr const char* function = "register_memory";
constexpr std::size_t size = testing::registered_size;

class RegistrationExtensions : public testing::RegistrationTest {
  protected:
    RegistrationExtensions() { extensions = {}; }
};

struct Tried {
    RegistrationPath path;
    MappingKind mapping;
    int error;
    friend bool operator==(const Tried&, const Tried&) = default;
};
void PrintTo(const Tried& tried, std::ostream* out) { // NOLINT(readability-identifier-naming)
    *out << to_string(tried.path) << (tried.mapping == MappingKind::pcie ? " pcie " : " ")
         << tried.error;
}

std::vector<Tried> tried(const Trail& trail) {
    std::vector<Tried> all;
    for (const Attempt& attempt : trail) {
        all.push_back({attempt.path, attempt.mapping, attempt.error});
    }
    return all;
}

// Data direct

TEST_F(RegistrationExtensions, DataDirectTakesMemoryMappedForPcie) {
    const Registration region =
        device({.paths = {dmabuf_data_direct}, .access = Access::local_write});
    EXPECT_EQ(region.path(), dmabuf_data_direct);
    EXPECT_EQ(region.mapping(), MappingKind::pcie);
    EXPECT_THAT(exporter_->exports, ElementsAre(MappingKind::pcie));
    ASSERT_EQ(extensions.data_direct.size(), 1U);
    EXPECT_EQ(extensions.data_direct[0].offset, 0U);
    EXPECT_EQ(extensions.data_direct[0].length, size);
    EXPECT_EQ(extensions.data_direct[0].iova, exporter_->allocation.base);
    EXPECT_EQ(extensions.data_direct[0].access, IBV_ACCESS_LOCAL_WRITE);
    EXPECT_EQ(extensions.data_direct[0].mlx5_access, 1);
    EXPECT_EQ(
        to_string(region.trail()),
        "dmabuf_data_direct: mlx5dv_reg_dmabuf_mr, memory of fake mapped for PCIe: registered.");
    EXPECT_EQ(exporter_->releases, 1U);
}

TEST_F(RegistrationExtensions, DataDirectBeginsAtAPage) {
    const std::uintptr_t address = exporter_->allocation.base + 4096 + 100;
    exporter_->offset_by = -std::uint64_t{4096}; // Its dma-buf has the pages of the range only.
    const Registration region =
        register_memory(basics_.pd, resolver_, address, 1000, {.paths = {dmabuf_data_direct}});
    ASSERT_EQ(extensions.data_direct.size(), 1U);
    EXPECT_EQ(extensions.data_direct[0].offset, 0U);
    EXPECT_EQ(extensions.data_direct[0].length, 1100U);
    EXPECT_EQ(extensions.data_direct[0].iova, address - 100);
    // What was asked for is what it says.
    EXPECT_EQ(region.iova(), address);
    EXPECT_EQ(region.remote().address, address);
    EXPECT_EQ(region.remote().length, 1000U);
    EXPECT_THAT(error_of([&] { static_cast<void>(region.sge(0, 1001)); }),
                fails_with("Region::sge", ERANGE, "1001 bytes"));
}

TEST_F(RegistrationExtensions, DataDirectTakesTheStandardMappingWhereThereIsNoOther) {
    exporter_->pcie_error = ENOTSUP;
    const Registration region = device({.paths = {dmabuf_data_direct}});
    EXPECT_THAT(tried(region.trail()),
                ElementsAre(Tried{dmabuf_data_direct, MappingKind::pcie, ENOTSUP},
                            Tried{dmabuf_data_direct, MappingKind::standard, 0}));
    EXPECT_THAT(refusal({.paths = {dmabuf_data_direct}, .mapping = MappingKind::pcie}),
                fails_with(function, ENOTSUP, "it does not map that way"));
}

TEST_F(RegistrationExtensions, RefusedMemoryIsNotReportedForAMappingThatItNeverHas) {
    ASSERT_EQ(softverbs_fail_call("ibv_reg_dmabuf_mr", 1, EOPNOTSUPP), 0);
    exporter_->pcie_error = ENOTSUP;
    Trail trail;
    EXPECT_THAT(refusal({.paths = {dmabuf}, .trail = &trail}), fails_with(function, EOPNOTSUPP));
    EXPECT_THAT(tried(trail), ElementsAre(Tried{dmabuf, MappingKind::standard, EOPNOTSUPP}));
}

TEST_F(RegistrationExtensions, RefusedStandardMappingIsTriedForPcieWithDataDirect) {
    for (const int error : {EOPNOTSUPP, EINVAL, 524}) {
        extensions = {};
        ASSERT_EQ(softverbs_fail_call("ibv_reg_dmabuf_mr", 1, error), 0);
        const Registration region = device({.paths = {dmabuf}});
        EXPECT_EQ(region.path(), dmabuf_data_direct);
        EXPECT_THAT(tried(region.trail()),
                    ElementsAre(Tried{dmabuf, MappingKind::standard, error},
                                Tried{dmabuf_data_direct, MappingKind::pcie, 0}));
    }
    EXPECT_EQ(exporter_->releases, 6U) << "each export is given back";
}

TEST_F(RegistrationExtensions, RefusedDataDirectIsTriedTheStandardWay) {
    for (const int error : {EOPNOTSUPP, EINVAL, 524}) {
        extensions.data_direct_error = error;
        const Registration region = device({.paths = {dmabuf_data_direct}});
        EXPECT_EQ(region.path(), dmabuf);
        EXPECT_THAT(tried(region.trail()),
                    ElementsAre(Tried{dmabuf_data_direct, MappingKind::pcie, error},
                                Tried{dmabuf, MappingKind::standard, 0}));
    }
}

TEST_F(RegistrationExtensions, OtherErrorsDoNotChangeTheMapping) {
    extensions.data_direct_error = ENOMEM;
    EXPECT_THAT(refusal({.paths = {dmabuf_data_direct}}), fails_with(function, ENOMEM, ""));
    ASSERT_EQ(softverbs_fail_call("ibv_reg_dmabuf_mr", 1, ENODEV), 0);
    EXPECT_THAT(refusal({.paths = {dmabuf}}), fails_with(function, ENODEV, "revoked"));
    EXPECT_THAT(exporter_->exports, ElementsAre(MappingKind::pcie, MappingKind::standard));
}

TEST_F(RegistrationExtensions, PathsThatAreListedKeepTheirPlaces) {
    extensions.data_direct_error = EINVAL;
    testing::fail_dmabufs(0, EOPNOTSUPP);
    Trail trail;
    EXPECT_THAT(refusal({.paths = {dmabuf_data_direct, host, dmabuf}, .trail = &trail}),
                fails_with(function, EINVAL, "soft0 has no data-direct function"));
    EXPECT_THAT(tried(trail), ElementsAre(Tried{dmabuf_data_direct, MappingKind::pcie, EINVAL},
                                          Tried{host, MappingKind::standard, EPERM},
                                          Tried{dmabuf, MappingKind::standard, EOPNOTSUPP}));
    EXPECT_EQ(exporter_->releases, 2U);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 0U);
}

TEST_F(RegistrationExtensions, DataDirectIsRefusedWhatTheKernelRefuses) {
    EXPECT_THAT(refusal({.paths = {dmabuf_data_direct}, .iova = 100}),
                fails_with(function, EINVAL, "the iova lies 100 bytes into its page"));
    EXPECT_THAT(refusal({.paths = {dmabuf_data_direct}, .access = Access::on_demand}),
                fails_with(function, EINVAL, "a dma-buf cannot be registered with on_demand"));
    EXPECT_TRUE(extensions.data_direct.empty());
}

TEST_F(RegistrationExtensions, DataDirectNeedsADmaBufThatBeginsWithTheRange) {
    const std::uintptr_t base = exporter_->allocation.base;
    const Registration region =
        register_memory(basics_.pd, resolver_, base + 4096, 1000, {.paths = {dmabuf_data_direct}});
    EXPECT_EQ(region.path(), dmabuf);
    EXPECT_THAT(tried(region.trail()),
                ElementsAre(Tried{dmabuf_data_direct, MappingKind::pcie, EOPNOTSUPP},
                            Tried{dmabuf, MappingKind::standard, 0}));
    EXPECT_THAT(region.trail()[0].meaning,
                ::testing::HasSubstr("a region begins at byte 4096 of the dma-buf"));
    // The dma-bufs of this exporter begin with the allocation, and only the first chunk does.
    const ChunkedRegion chunks(
        basics_.pd, resolver_, base, 20000,
        {.registration = {.paths = {dmabuf_data_direct}}, .chunk_size = 8192});
    EXPECT_EQ(chunks.path(), dmabuf);
    EXPECT_EQ(chunks.chunks().size(), 3U);
    EXPECT_TRUE(extensions.data_direct.empty());
    EXPECT_EQ(exporter_->releases, exporter_->exports.size());
}

TEST_F(RegistrationExtensions, EinvalOfANicWithDataDirectIsNotBlamedOnDataDirect) {
    extensions.data_direct_device = "soft0";
    extensions.data_direct_error = EINVAL;
    const auto error = refusal({.paths = {dmabuf_data_direct}, .mapping = MappingKind::pcie});
    EXPECT_THAT(error, fails_with(function, EINVAL, "is not a dma-buf"));
    EXPECT_THAT(std::string(error->what()),
                ::testing::Not(::testing::HasSubstr("has no data-direct function")));
}

// The mapping of each NIC

/// Makes a device answer as an EFA.
void make_efa(const Context& context, unsigned device) {
    context.native()->device->node_type = IBV_NODE_UNSPECIFIED;
    testing::change_device(
        [](ibv_device_attr_ex& attributes) {
            attributes.orig_attr.vendor_id = 0x1d0f;
            attributes.orig_attr.vendor_part_id = 0xefa2;
        },
        device);
}

TEST_F(RegistrationExtensions, EfaGetsTheStandardMappingWhereThereIsNoOtherOrTheNicRefusesIt) {
    make_efa(basics_.context, 0);
    exporter_->pcie_error = ENOTSUP;
    EXPECT_THAT(tried(device().trail()), ElementsAre(Tried{dmabuf, MappingKind::pcie, ENOTSUP},
                                                     Tried{dmabuf, MappingKind::standard, 0}));
    exporter_->pcie_error = 0;
    ASSERT_EQ(softverbs_fail_call("ibv_reg_dmabuf_mr", 1, EOPNOTSUPP), 0);
    EXPECT_THAT(tried(device().trail()), ElementsAre(Tried{dmabuf, MappingKind::pcie, EOPNOTSUPP},
                                                     Tried{dmabuf, MappingKind::standard, 0}));
}

TEST_F(RegistrationExtensions, MappingThatIsReportedIsTheOneThatWasExported) {
    make_efa(basics_.context, 0);
    exporter_->pcie_falls_back = true;
    exporter_->exports.clear();
    const Registration region = device();
    EXPECT_EQ(region.mapping(), MappingKind::standard);
    EXPECT_THAT(tried(region.trail()), ElementsAre(Tried{dmabuf, MappingKind::standard, 0}));
    EXPECT_EQ(exporter_->exports.size(), 1U) << "one export serves both requests";
    EXPECT_EQ(device({.mapping = MappingKind::pcie}).mapping(), MappingKind::standard);
}

TEST_F(RegistrationExtensions, ChunksHaveTheMappingThatIsReported) {
    exporter_->on_export = [this] {
        // The exporter has no room for a second PCIe mapping.
        exporter_->pcie_falls_back = exporter_->exports.size() > 1;
        exporter_->offset_by = exporter_->pcie_falls_back ? 32768 : 0;
    };
    const ChunkedRegion chunks(
        basics_.pd, resolver_, exporter_->allocation.base, 8192,
        {.registration = {.paths = {dmabuf}, .mapping = MappingKind::pcie}, .chunk_size = 4096});
    EXPECT_EQ(chunks.mapping(), MappingKind::pcie);
    ASSERT_EQ(registrations().size(), 2U);
    EXPECT_EQ(registrations()[0].start, 0U) << "all chunks are in the first dma-buf";
    EXPECT_EQ(registrations()[1].start, 4096U);
    exporter_->allocation.single_import = true;
    exporter_->exports.clear();
    const auto chunked = [&] {
        const ChunkedRegion none(basics_.pd, resolver_, exporter_->allocation.base, 8192,
                                 {.registration = {.paths = {dmabuf}, .mapping = MappingKind::pcie},
                                  .chunk_size = 4096});
    };
    EXPECT_THAT(error_of(chunked),
                fails_with(EIO, "a part of the range was exported with another mapping"));
}

TEST_F(RegistrationExtensions, DmaBufsOfChunksAreClosedIfTheirMappingIsNotUsed) {
    extensions.data_direct_device = "soft0";
    exporter_->pcie_falls_back = true;
    const ChunkedRegion chunks(basics_.pd, resolver_, exporter_->allocation.base, 8192,
                               {.chunk_size = 4096});
    EXPECT_EQ(chunks.path(), dmabuf);
    EXPECT_EQ(exporter_->exports.size(), 1U + 2U + 2U) << "the chunks are exported twice";
    EXPECT_EQ(exporter_->most_exported, 1U + 2U);
}

TEST_F(RegistrationExtensions, NicWithADataDirectFunctionGetsThePcieMappingWithDataDirect) {
    extensions.data_direct_device = "soft0";
    const Registration region = device();
    EXPECT_EQ(region.path(), dmabuf_data_direct);
    EXPECT_EQ(region.mapping(), MappingKind::pcie);
    EXPECT_THAT(to_string(region.trail()),
                ::testing::HasSubstr("(the NIC has a data-direct function): registered"));
    EXPECT_EQ(device({.paths = {dmabuf}}).path(), dmabuf) << "the caller chose the path";
    EXPECT_EQ(device({.mapping = MappingKind::standard}).mapping(), MappingKind::standard);
}

TEST_F(RegistrationExtensions, DataDirectIsNotUsedForAnExporterThatHasOneMapping) {
    extensions.data_direct_device = "soft0";
    exporter_->pcie_falls_back = true;
    EXPECT_THAT(tried(device().trail()), ElementsAre(Tried{dmabuf, MappingKind::standard, 0}));
    EXPECT_TRUE(extensions.data_direct.empty());
}

class RegistrationOnThreeNics : public testing::SoftverbsTest {
  protected:
    RegistrationOnThreeNics() {
        extensions = {};
        testing::use_roce_devices({"soft0", "soft1", "soft2"});
    }

    std::shared_ptr<testing::FakeExporter> exporter_ =
        std::make_shared<testing::FakeExporter>(size);
    Resolver resolver_{{exporter_}};
};

TEST_F(RegistrationOnThreeNics, EachNicGetsTheMappingThatItNeeds) {
    extensions.data_direct_device = "soft2";
    const ProtectionDomain plain(Context::open("soft0"));
    const Context efa = Context::open("soft1");
    make_efa(efa, 1);
    const std::vector<ProtectionDomain> pds{plain, ProtectionDomain(efa),
                                            ProtectionDomain(Context::open("soft2")), plain};
    const Registration region =
        register_memory(pds, resolver_, exporter_->allocation.base, size, {});
    ASSERT_EQ(region.size(), 4U);
    EXPECT_EQ(region.path(0), dmabuf);
    EXPECT_EQ(region.mapping(0), MappingKind::standard);
    EXPECT_EQ(region.path(1), dmabuf);
    EXPECT_EQ(region.mapping(1), MappingKind::pcie);
    EXPECT_EQ(region.path(2), dmabuf_data_direct);
    EXPECT_EQ(region.mapping(2), MappingKind::pcie);
    EXPECT_EQ(region.mapping(3), MappingKind::standard);
    for (std::size_t i = 0; i < pds.size(); ++i) {
        EXPECT_EQ(region.protection_domain(i), pds[i]) << "the order of the list";
    }
    EXPECT_THAT(exporter_->exports, ElementsAre(MappingKind::standard, MappingKind::pcie))
        << "one export for each mapping";
    EXPECT_EQ(exporter_->releases, 2U);
    ASSERT_EQ(region.trail().size(), 3U);
    EXPECT_EQ(region.trail()[0].device, "soft0, soft0");
    EXPECT_EQ(region.trail()[1].device, "soft1");
    EXPECT_EQ(region.trail()[2].device, "soft2");
}

TEST_F(RegistrationOnThreeNics, NicThatRefusesItsMappingDoesNotChangeThatOfTheOthers) {
    extensions.data_direct_device = "soft1";
    extensions.data_direct_error = EINVAL;
    const std::vector<ProtectionDomain> pds{ProtectionDomain(Context::open("soft0")),
                                            ProtectionDomain(Context::open("soft1"))};
    const Registration region =
        register_memory(pds, resolver_, exporter_->allocation.base, size, {});
    EXPECT_EQ(region.mapping(0), MappingKind::standard);
    EXPECT_EQ(region.path(1), dmabuf);
    EXPECT_EQ(region.mapping(1), MappingKind::standard);
    EXPECT_THAT(tried(region.trail()),
                ElementsAre(Tried{dmabuf, MappingKind::standard, 0},
                            Tried{dmabuf_data_direct, MappingKind::pcie, EINVAL},
                            Tried{dmabuf, MappingKind::standard, 0}));
    EXPECT_EQ(exporter_->releases, 2U);
}

TEST_F(RegistrationOnThreeNics, RefusalAfterASuccessHasAnErrno) {
    extensions.data_direct_device = "soft1";
    const std::vector<ProtectionDomain> pds{ProtectionDomain(Context::open("soft0")),
                                            ProtectionDomain(Context::open("soft1"))};
    Trail trail;
    EXPECT_THAT(error_of([&] {
                    // Data direct needs the first page of a dma-buf.
                    static_cast<void>(
                        register_memory(pds, resolver_, exporter_->allocation.base + 4096, 4096,
                                        {.mapping = MappingKind::pcie, .trail = &trail}));
                }),
                fails_with(function, EOPNOTSUPP, "data direct needs its first page"));
    EXPECT_THAT(tried(trail), ElementsAre(Tried{dmabuf, MappingKind::pcie, 0},
                                          Tried{dmabuf_data_direct, MappingKind::pcie, EOPNOTSUPP},
                                          Tried{host, MappingKind::standard, EPERM}));
}

// The mapping of each NIC by its path to the memory

/// A GPU with a chip-to-chip link to its CPU, and three NICs: soft0 below the PCIe switch of the
/// GPU, soft1 and soft2 at another host bridge of the CPU. soft2 has a data-direct function at the
/// switch.
class RegistrationByTopology : public RegistrationOnThreeNics {
  protected:
    RegistrationByTopology() {
        exporter_->allocation.pci_address = "0008:06:00.0";
        exporter_->allocation.c2c = true;
        extensions.data_direct_device = "soft2";
        EXPECT_TRUE(topology_.set_data_direct("soft2", "/0008:08:00.0"));
    }
    [[nodiscard]] Registration make(const RegistrationOptions& options) const {
        return register_memory(pds_, resolver_, exporter_->allocation.base, size, options);
    }
    [[nodiscard]] std::vector<std::string> nearest(std::size_t most = 0) const {
        std::vector<std::string> names;
        const MemoryLocation location = locate_memory(exporter_->allocation);
        for (const ProtectionDomain& pd : nearest_domains(pds_, topology_, location, most)) {
            names.push_back(pd.context().device_name());
        }
        return names;
    }

    testing::SysfsTree tree_{R"(
        pci0008:00/0008:00:00.0/0008:01:00.0/0008:02:00.0/0008:06:00.0 gpu numa=0
        pci0008:00/0008:00:00.0/0008:01:00.0/0008:02:01.0/0008:07:00.0 nic=soft0 numa=0
        pci0008:00/0008:00:00.0/0008:01:00.0/0008:02:02.0/0008:08:00.0 dma numa=0
        pci0000:00/0000:00:00.0/0000:03:00.0 nic=soft1 numa=0
        pci0000:00/0000:00:01.0/0000:04:00.0 nic=soft2 numa=0
    )"};
    Topology topology_ = Topology::read(tree_.root());
    std::vector<ProtectionDomain> pds_{ProtectionDomain(Context::open("soft1")),
                                       ProtectionDomain(Context::open("soft2")),
                                       ProtectionDomain(Context::open("soft0"))};
};

TEST_F(RegistrationByTopology, NicBelowTheSwitchOfAGpuWithAChipToChipLinkGetsThePcieMapping) {
    const Registration region = make({.topology = &topology_});
    EXPECT_EQ(region.path(0), dmabuf);
    EXPECT_EQ(region.mapping(0), MappingKind::standard);
    EXPECT_EQ(region.path(1), dmabuf_data_direct);
    EXPECT_EQ(region.mapping(1), MappingKind::pcie);
    EXPECT_EQ(region.path(2), dmabuf);
    EXPECT_EQ(region.mapping(2), MappingKind::pcie);
    EXPECT_THAT(to_string(region.trail()),
                ::testing::HasSubstr("on soft0, memory of fake mapped for PCIe (the NIC and the "
                                     "memory are below the same PCIe switch): registered"));
    EXPECT_THAT(to_string(region.trail()),
                ::testing::HasSubstr("(the data-direct function of the NIC is nearer to the "
                                     "memory than the NIC): registered"));
    EXPECT_THAT(exporter_->exports, ElementsAre(MappingKind::standard, MappingKind::pcie));
    EXPECT_EQ(make({}).mapping(2), MappingKind::standard) << "without a topology";
}

TEST_F(RegistrationByTopology, CacheKeepsTheTopology) {
    auto topology = std::make_shared<const Topology>(topology_);
    const std::weak_ptr<const Topology> kept = topology;
    std::optional<RegistrationCache> cache(std::in_place, pds_, resolver_,
                                           RegistrationCacheOptions{.topology = topology});
    topology.reset();
    EXPECT_EQ(cache->acquire(exporter_->allocation.base, size, Access::local_write)
                  .registration()
                  .mapping(2),
              MappingKind::pcie);
    cache.reset();
    EXPECT_TRUE(kept.expired());
}

TEST_F(RegistrationByTopology, EfaGetsTheMappingOfItsRouteToAGpuWithAChipToChipLink) {
    make_efa(pds_[0].context(), 1);
    make_efa(pds_[2].context(), 0);
    const Registration region = make({.topology = &topology_});
    EXPECT_EQ(region.mapping(0), MappingKind::standard) << "soft1 is at the CPU";
    EXPECT_EQ(region.mapping(2), MappingKind::pcie) << "soft0 is below the switch of the GPU";
    EXPECT_THAT(to_string(region.trail()),
                ::testing::HasSubstr("on soft0, memory of fake mapped for PCIe (EFA reaches "
                                     "device memory over PCIe): registered"));
    EXPECT_EQ(make({}).mapping(0), MappingKind::pcie) << "without a topology";
    exporter_->allocation.c2c = false;
    EXPECT_EQ(make({.topology = &topology_}).mapping(0), MappingKind::pcie)
        << "all routes are over PCIe";
}

TEST_F(RegistrationByTopology, WithoutAChipToChipLinkTheStandardMappingIsEnough) {
    exporter_->allocation.c2c = false;
    EXPECT_EQ(make({.topology = &topology_}).mapping(2), MappingKind::standard);
}

TEST_F(RegistrationByTopology, DataDirectIsNotUsedWhereItIsNotNearerThanTheNic) {
    const testing::SysfsTree far(R"(
        pci0008:00/0008:00:00.0/0008:01:00.0/0008:02:00.0/0008:06:00.0 gpu numa=0
        pci0000:00/0000:00:01.0/0000:04:00.0 nic=soft2 numa=0
        pci0009:00/0009:00:00.0/0009:01:00.0 dma numa=0
    )");
    Topology topology = Topology::read(far.root());
    ASSERT_TRUE(topology.set_data_direct("soft2", "/0009:01:00.0"));
    const Registration region = make({.topology = &topology});
    EXPECT_EQ(region.path(1), dmabuf);
    EXPECT_EQ(region.mapping(1), MappingKind::standard);
}

TEST_F(RegistrationByTopology, UnknownPathsChangeNothing) {
    exporter_->allocation.pci_address = "0042:00:00.0";
    const Registration region = make({.topology = &topology_});
    EXPECT_EQ(region.path(1), dmabuf_data_direct);
    EXPECT_EQ(region.mapping(2), MappingKind::standard);
}

TEST_F(RegistrationByTopology, NearestDomainsAreThoseOfTheNicsOfTheLowestRank) {
    EXPECT_THAT(nearest(), ElementsAre("soft2", "soft0")) << "by PCI address";
    EXPECT_THAT(nearest(1), ElementsAre("soft2"));
    EXPECT_THAT(nearest(9), ElementsAre("soft2", "soft0", "soft1"));
    topology_ = Topology::read(testing::SysfsTree().root());
    EXPECT_THAT(nearest(), ElementsAre("soft1", "soft2", "soft0")) << "no NIC is known";
    EXPECT_THAT(nearest_domains({}, topology_, {}), ::testing::IsEmpty());
}

// DMA handles

TEST_F(RegistrationExtensions, DmaHandleSaysWhatItIsFor) {
    EXPECT_TRUE(DmaHandle::available());
    const DmaHandle handle(
        basics_.context,
        {.cpu = 3, .memory = TphMemory::persistent_memory, .processing_hint = std::uint8_t{2}});
    ASSERT_EQ(extensions.alloc_dmah.size(), 1U);
    EXPECT_EQ(extensions.alloc_dmah[0].comp_mask, 7U);
    EXPECT_EQ(extensions.alloc_dmah[0].cpu_id, 3U);
    EXPECT_EQ(extensions.alloc_dmah[0].tph_mem_type, 1U);
    EXPECT_EQ(extensions.alloc_dmah[0].ph, 2U);
    const DmaHandle hint_only(basics_.context, {.processing_hint = std::uint8_t{0}});
    EXPECT_EQ(extensions.alloc_dmah[1].comp_mask, 2U);
    EXPECT_EQ(extensions.live_dmahs, 2U);
}

TEST_F(RegistrationExtensions, DmaHandleGoesWithDmaBufs) {
    const DmaHandle handle(basics_.context, {.processing_hint = std::uint8_t{0}});
    const Registration region = register_memory(
        basics_.pd, resolver_, exporter_->allocation.base + 4096, 1000, {.dma_handle = &handle});
    EXPECT_EQ(region.path(), dmabuf);
    EXPECT_STREQ(region.trail().back().call, "ibv_reg_mr_ex");
    ASSERT_EQ(extensions.reg_mr_ex.size(), 1U);
    const MrInitAttr& asked = extensions.reg_mr_ex[0];
    EXPECT_EQ(asked.comp_mask, 1U | 4U | 8U | 16U);
    EXPECT_EQ(asked.iova, exporter_->allocation.base + 4096);
    EXPECT_EQ(asked.fd_offset, 4096U);
    EXPECT_EQ(asked.length, 1000U);
    EXPECT_EQ(asked.dmah, handle.native());
    EXPECT_EQ(asked.access, IBV_ACCESS_LOCAL_WRITE);
}

TEST_F(RegistrationExtensions, DmaHandleGoesWithHostMemory) {
    const DmaHandle handle(basics_.context, {.processing_hint = std::uint8_t{0}});
    const Registration region = register_memory(basics_.pd, resolver_, host_memory_.data(), 4096,
                                                {.paths = {host}, .dma_handle = &handle});
    ASSERT_EQ(extensions.reg_mr_ex.size(), 1U);
    EXPECT_EQ(extensions.reg_mr_ex[0].comp_mask, 1U | 2U | 16U);
    EXPECT_EQ(extensions.reg_mr_ex[0].addr, host_memory_.data());
    EXPECT_EQ(extensions.reg_mr_ex[0].iova, region.address());
}

TEST_F(RegistrationExtensions, RegionKeepsItsDmaHandle) {
    std::optional<Registration> region;
    {
        const DmaHandle handle(basics_.context, {.processing_hint = std::uint8_t{0}});
        region.emplace(device({.dma_handle = &handle}));
    }
    EXPECT_EQ(extensions.live_dmahs, 1U);
    region.reset();
    EXPECT_EQ(extensions.live_dmahs, 0U);
}

TEST_F(RegistrationExtensions, DmaHandleIsNotDroppedWithoutSayingSo) {
    const DmaHandle handle(basics_.context, {.processing_hint = std::uint8_t{0}});
    extensions.reg_mr_ex_error = EOPNOTSUPP;
    const auto error = refusal({.paths = {dmabuf}, .dma_handle = &handle});
    EXPECT_THAT(error, fails_with(function, EOPNOTSUPP, "ibv_reg_mr_ex on soft0"));
    EXPECT_TRUE(extensions.data_direct.empty());
    EXPECT_THAT(testing::record().registrations,
                ::testing::Each(::testing::Field(&testing::Registration::fd, -1)))
        << "nothing but asking whether the device can import at all";
    extensions.reg_mr_ex_error = EFAULT;
    EXPECT_THAT(refusal({.paths = {peermem}, .dma_handle = &handle}),
                fails_with(function, EFAULT, "ibv_reg_mr_ex on soft0"));
}

TEST_F(RegistrationExtensions, ManagedMemoryIsNotRegisteredOnDemandWithoutItsDmaHandle) {
    const DmaHandle handle(basics_.context, {.processing_hint = std::uint8_t{0}});
    const auto managed = std::make_shared<testing::FakeExporter>(
        host_memory_.size(), reinterpret_cast<std::uintptr_t>(host_memory_.data()));
    managed->allocation.kind = MemoryKind::managed;
    managed->standard_error = EOPNOTSUPP;
    Trail trail;
    const auto make = [&](const DmaHandle* used) {
        return register_memory(basics_.pd, Resolver({managed}), host_memory_.data(),
                               host_memory_.size(), {.dma_handle = used, .trail = &trail});
    };
    EXPECT_THAT(error_of([&] { static_cast<void>(make(&handle)); }),
                fails_with(function, EOPNOTSUPP, "on_demand does not support a DMA handle"));
    EXPECT_THAT(tried(trail), ElementsAre(Tried{dmabuf, MappingKind::standard, EOPNOTSUPP},
                                          Tried{on_demand, MappingKind::standard, EINVAL}));
    EXPECT_TRUE(registrations().empty());
    EXPECT_EQ(make(nullptr).path(), on_demand);
}

TEST_F(RegistrationExtensions, DmaHandleContradictsDataDirectAndOtherContexts) {
    const DmaHandle handle(basics_.context, {.processing_hint = std::uint8_t{0}});
    EXPECT_THAT(refusal({.paths = {dmabuf, dmabuf_data_direct}, .dma_handle = &handle}),
                fails_with(function, EINVAL, "dmabuf_data_direct does not support a DMA handle"));
    const DmaHandle elsewhere(Context::open("soft0"), {.processing_hint = std::uint8_t{0}});
    EXPECT_THAT(refusal({.dma_handle = &elsewhere}),
                fails_with(function, EINVAL, "the DMA handle of soft0 and a protection domain of"));
    EXPECT_TRUE(extensions.reg_mr_ex.empty());
}

TEST_F(RegistrationExtensions, DmaHandleRefusesWhatMeansNothing) {
    const auto refused = [&](const DmaHandleOptions& options) {
        return error_of([&] { DmaHandle(basics_.context, options); });
    };
    EXPECT_THAT(refused({.processing_hint = std::uint8_t{4}}),
                fails_with("ibv_alloc_dmah", EINVAL, "a processing hint of 4"));
    EXPECT_THAT(refused({.cpu = 1}), fails_with("ibv_alloc_dmah", EINVAL, "must be set together"));
    EXPECT_THAT(refused({.memory = TphMemory::volatile_memory}),
                fails_with("ibv_alloc_dmah", EINVAL, "must be set together"));
    EXPECT_TRUE(extensions.alloc_dmah.empty());
}

TEST_F(RegistrationExtensions, DmaHandleSaysWhatKernelsAnswer) {
    const auto refused = [&](int error, const DmaHandleOptions& options) {
        extensions.alloc_dmah_error = error;
        return error_of([&] { DmaHandle(basics_.context, options); });
    };
    const DmaHandleOptions all{
        .cpu = 999, .memory = TphMemory::volatile_memory, .processing_hint = std::uint8_t{1}};
    EXPECT_THAT(refused(EPROTONOSUPPORT, all),
                fails_with("ibv_alloc_dmah", EPROTONOSUPPORT, "use Linux 6.17"));
    EXPECT_THAT(
        refused(EOPNOTSUPP, all),
        fails_with("ibv_alloc_dmah", EOPNOTSUPP, "soft0 does not support TLP processing hints"));
    EXPECT_THAT(refused(EPERM, all), fails_with("ibv_alloc_dmah", EPERM, "processor 999"));
    EXPECT_THAT(refused(EINVAL, {}), fails_with("ibv_alloc_dmah", EINVAL, "requires a processing"));
}

TEST_F(RegistrationExtensions, DmaHandleInUseCannotBeClosed) {
    DmaHandle handle(basics_.context, {.processing_hint = std::uint8_t{0}});
    {
        const Registration region = device({.dma_handle = &handle});
        DmaHandle copy = handle;
        EXPECT_THAT(error_of([&] { copy.close(); }), fails_with("ibv_dealloc_dmah", EBUSY, ""));
    }
    extensions.dealloc_dmah_error = EIO;
    EXPECT_THAT(error_of([&] { handle.close(); }), fails_with("ibv_dealloc_dmah", EIO, ""));
    EXPECT_EQ(extensions.live_dmahs, 1U);
    extensions.dealloc_dmah_error = 0;
    handle.close();
    EXPECT_EQ(extensions.live_dmahs, 0U);
}

} // namespace
} // namespace rdmabuf

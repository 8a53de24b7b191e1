// SPDX-License-Identifier: BSD-3-Clause
// What failures are explained with: the trail, and what is known of drivers.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/quirks.hpp>
#include <rdmabuf/registration.hpp>

#include "device/sysfs.hpp"
#include "registration/registration_hints.hpp"
#include "temporary_directory.hpp"

namespace rdmabuf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
namespace fs = std::filesystem;

/// A directory of its own, in place of sysfs.
class Sysfs : public ::testing::Test {
  protected:
    TemporaryDirectory directory_;
    fs::path root_ = directory_.path();
};

TEST(Trail, IsOneParagraph) {
    Trail trail;
    EXPECT_EQ(to_string(trail), "nothing was tried.");
    trail.add({.path = RegistrationPath::dmabuf,
               .error = 524,
               .call = "ibv_reg_dmabuf_mr",
               .exporter = "cuda",
               .device = "mlx5_0",
               .meaning = "the PCI topology forbids it",
               .remedy = "use another slot"});
    trail.add({.path = RegistrationPath::dmabuf_data_direct,
               .mapping = MappingKind::pcie,
               .error = EINVAL,
               .call = "mlx5dv_reg_dmabuf_mr",
               .exporter = "cuda",
               .device = "mlx5_0"});
    trail.add({.path = RegistrationPath::peermem, .call = "ibv_reg_mr", .exporter = "cuda"});
    EXPECT_EQ(to_string(trail),
              "dmabuf: ibv_reg_dmabuf_mr on mlx5_0, memory of cuda: Operation not supported "
              "(ENOTSUPP, kernel-internal 524): the PCI topology forbids it; use another slot. "
              "dmabuf_data_direct: mlx5dv_reg_dmabuf_mr on mlx5_0, memory of cuda mapped for PCIe: "
              "Invalid argument (EINVAL). "
              "peermem: ibv_reg_mr, memory of cuda: registered.");
    EXPECT_THAT(to_string(trail), Not(HasSubstr("\n")));
    EXPECT_EQ(trail.size(), 3U);
    EXPECT_EQ(trail.back().path, RegistrationPath::peermem);
    EXPECT_TRUE(trail[2].worked());
    EXPECT_FALSE(trail[0].worked());
}

TEST_F(Sysfs, NamesThePeerMemoryClientsThatAreLoaded) {
    EXPECT_THAT(detail::peer_memory_clients(root_), IsEmpty());
    fs::create_directories(root_ / "module/nvidia_peermem");
    EXPECT_THAT(detail::peer_memory_clients(root_), ElementsAre("nvidia_peermem"));
    fs::create_directories(root_ / "kernel/mm/memory_peers/nv_mem");
    fs::create_directories(root_ / "kernel/mm/memory_peers/amdkfd");
    EXPECT_THAT(detail::peer_memory_clients(root_),
                ElementsAre("amdkfd", "nv_mem", "nvidia_peermem"));
}

TEST_F(Sysfs, HasTheDriverOfADevice) {
    const fs::path devices = root_ / "class/infiniband";
    fs::create_directories(devices / "mlx5_0/device");
    fs::create_symlink("../../../bus/pci/drivers/mlx5_core", devices / "mlx5_0/device/driver");
    EXPECT_EQ(detail::sysfs::driver_name("mlx5_0", root_), "mlx5_core");
    fs::create_directories(devices / "siw0");
    EXPECT_EQ(detail::sysfs::driver_name("siw0", root_), "");
    EXPECT_EQ(detail::sysfs::driver_name("soft0", root_), "");
}

TEST_F(Sysfs, HasSoftRoceByItsOwnAttributeWhateverCardItIsOn) {
    const fs::path device = root_ / "class/infiniband/rxe0";
    fs::create_directories(device / "device");
    std::ofstream(device / "parent") << "eth0\n";
    EXPECT_EQ(detail::sysfs::driver_name("rxe0", root_), "rxe");
    fs::create_symlink("../../../bus/pci/drivers/e1000e", device / "device/driver");
    EXPECT_EQ(detail::sysfs::driver_name("rxe0", root_), "rxe");
}

TEST(PeerMemory, SaysWhetherAClientIsMissingOrRefuses) {
    Attempt attempt;
    detail::explain_peer_memory({}, attempt);
    EXPECT_THAT(attempt.meaning, HasSubstr("neither /sys/module/nvidia_peermem nor"));
    EXPECT_THAT(attempt.remedy, HasSubstr("modprobe nvidia_peermem"));
    detail::explain_peer_memory({"nv_mem", "nvidia_peermem"}, attempt);
    EXPECT_THAT(attempt.meaning, HasSubstr("(nv_mem, nvidia_peermem), but none of them accepted"));
    EXPECT_THAT(attempt.remedy, HasSubstr("gpuDirectRDMACapable"));
}

TEST(Refusals, AreExplainedWithWhatIsKnownOfBothDrivers) {
    Attempt attempt{.error = EOPNOTSUPP, .exporter = "vfio"};
    detail::explain_refusal("efa", attempt);
    EXPECT_EQ(
        attempt.remedy,
        "the driver efa imports dma-bufs from Linux 5.16 and rdma-core 38 on (pinned); no "
        "remote_atomic (EOPNOTSUPP); remote access only if the device supports RDMA; vfio refuses "
        "importers: EOPNOTSUPP unless the importer supports revocation and peer memory");
    Attempt none{.error = EOPNOTSUPP};
    detail::explain_refusal("mlx4_core", none);
    EXPECT_EQ(none.remedy, "the driver mlx4_core imports no dma-bufs up to Linux 7.3");
    Attempt software{.error = EOPNOTSUPP};
    detail::explain_refusal("rxe", software);
    EXPECT_EQ(software.remedy,
              "the driver rxe imports no dma-bufs up to Linux 7.3; dma-bufs need a "
              "device that does DMA");
    Attempt patched{.error = EINVAL};
    detail::explain_refusal("rxe", patched);
    EXPECT_EQ(patched.remedy, "") << "it does import";
    Attempt unknown{.error = EINVAL};
    detail::explain_refusal("something", unknown);
    detail::explain_refusal("", unknown);
    EXPECT_EQ(unknown.remedy, "");
    Attempt topology{.error = 524, .exporter = "cuda"};
    detail::explain_refusal("", topology);
    EXPECT_THAT(topology.remedy, HasSubstr("cuda refuses importers: 524 if the PCI topology"));
    Attempt memory{.error = ENOMEM, .exporter = "vfio"};
    detail::explain_refusal("efa", memory);
    EXPECT_EQ(memory.remedy, "") << "that is not about the two";
}

TEST(Quirks, AreFoundByDriver) {
    EXPECT_EQ(find_importer_quirk("mlx5_core")->driver, "mlx5");
    EXPECT_EQ(find_importer_quirk("mlx5")->mode, ImportMode::follows_moves);
    EXPECT_EQ(find_importer_quirk("i40e")->driver, "irdma");
    EXPECT_EQ(find_importer_quirk("rxe"), find_importer_quirk("siw"));
    EXPECT_EQ(find_importer_quirk("rxe")->mode, ImportMode::none);
    EXPECT_EQ(find_importer_quirk("i40"), nullptr);
    EXPECT_EQ(find_importer_quirk(""), nullptr);
    EXPECT_EQ(find_exporter_quirk("rocm")->pin, PinBehaviour::system_memory);
    EXPECT_EQ(find_exporter_quirk("nothing"), nullptr);
}

/// The rows of the table in the documentation that stands behind "<!-- @p name -->".
std::vector<std::string> documented(const std::string& name) {
    std::ifstream file(RDMABUF_REGISTRATION_DOC);
    EXPECT_TRUE(file) << RDMABUF_REGISTRATION_DOC;
    std::string line;
    while (std::getline(file, line) && line != "<!-- " + name + " -->") {
    }
    std::vector<std::string> rows;
    while (std::getline(file, line) && line.starts_with("|")) {
        rows.push_back(line);
    }
    rows.erase(rows.begin(), rows.begin() + std::min<std::ptrdiff_t>(2, std::ssize(rows)));
    return rows;
}

std::string cell(std::string_view text) {
    return text.empty() ? "-" : std::string(text);
}

/// The row of a quirk in the table of docs/registration.md.
std::string markdown_row(const ImporterQuirk& quirk) {
    return "| " + std::string(quirk.driver) + " | " + cell(quirk.kernel) + " | " +
           cell(quirk.rdma_core) + " | " + to_string(quirk.mode) + " | " + cell(quirk.note) + " |";
}

std::string markdown_row(const ExporterQuirk& quirk) {
    return "| " + std::string(quirk.exporter) + " | " + to_string(quirk.pin) + " | " +
           cell(quirk.refuses) + " | " + cell(quirk.note) + " |";
}

template <class Quirks>
std::vector<std::string> rows_of(const Quirks& quirks) {
    std::vector<std::string> rows;
    for (const auto& quirk : quirks) {
        rows.push_back(markdown_row(quirk));
    }
    return rows;
}

TEST(Quirks, AreThoseOfTheDocumentation) {
    EXPECT_EQ(documented("importers"), rows_of(importer_quirks()));
    EXPECT_EQ(documented("exporters"), rows_of(exporter_quirks()));
}

} // namespace
} // namespace rdmabuf

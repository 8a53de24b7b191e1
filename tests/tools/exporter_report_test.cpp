// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../unit/sysfs_tree.hpp"
#include "exporters/exporter_info.hpp"
#include "temporary_directory.hpp"
#include "version.hpp"

#include <nlohmann/json.hpp>

namespace {

using namespace rdmabuf::tools::exporters;
using rdmabuf::Availability;
using rdmabuf::tools::built_exporters;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ExporterInfoTest, HasTheVersionOfALoadedModule) {
    const TemporaryDirectory directory;
    const std::filesystem::path modules = std::filesystem::path(directory.path()) / "sys/module";
    std::filesystem::create_directories(modules / "udmabuf");
    EXPECT_THAT(query("udmabuf", directory.path()).modules, ElementsAre("udmabuf"));
    std::ofstream(modules / "udmabuf/version") << "1.2.3\n";
    EXPECT_THAT(query("udmabuf", directory.path()).modules, ElementsAre("udmabuf 1.2.3"));
    EXPECT_THAT(query("memfd", directory.path()).modules, IsEmpty());
}

TEST(ExporterInfoTest, NoDriverIsAdvisedForADeviceThatPciDoesNotHave) {
    const rdmabuf::testing::SysfsTree nvidia("pci0000:3a/0000:3b:00.0 gpu\n");
    const Availability absent = query("habana", nvidia.root()).availability;
    EXPECT_EQ(absent.reason, "there is no such device on PCI");
    EXPECT_EQ(absent.remedy, "");
    const rdmabuf::testing::SysfsTree gaudi("pci0000:3a/0000:3b:00.0 gpu\n");
    std::ofstream(gaudi.root() / "sys/bus/pci/devices/0000:3b:00.0/vendor") << "0x1da3\n";
    EXPECT_THAT(query("habana", gaudi.root()).availability.remedy, HasSubstr("habanalabs"));
    const TemporaryDirectory without_pci;
    EXPECT_THAT(query("habana", without_pci.path()).availability.remedy, HasSubstr("habanalabs"));
}

TEST(ExporterInfoTest, AllBuiltExportersAreListed) {
    for (const std::string& name : built_exporters()) {
        EXPECT_THAT(all_names(), Contains(name));
    }
}

TEST(ExporterInfoTest, AnExporterOfADeviceIsNotProbed) {
    const ExporterInfo info = query("verbs_dm");
    EXPECT_FALSE(info.standalone);
    EXPECT_THAT(info.availability.reason, HasSubstr("Context"));
    const auto json = nlohmann::json::parse(to_json({{info}}));
    EXPECT_TRUE(json["exporters"][0]["available"].is_null());
}

TEST(ExporterReport, HasTheReasonAndTheRemedy) {
    const ExporterInfo info{.name = "cuda",
                            .memory = "NVIDIA GPU",
                            .built = true,
                            .allocates = true,
                            .availability = Availability::no("no driver", "install it"),
                            .modules = {"nvidia 570.86"}};
    EXPECT_EQ(to_text({{info}}, {}),
              "cuda\n"
              "  memory            NVIDIA GPU, allocated on request\n"
              "  state             not available: no driver\n"
              "  remedy            install it\n"
              "  kernel modules    nvidia 570.86\n"
              "  when pinned       in place\n");
    const auto json = nlohmann::json::parse(to_json({{info}}))["exporters"][0];
    EXPECT_EQ(json["available"], false);
    EXPECT_EQ(json["reason"], "no driver");
    EXPECT_EQ(json["remedy"], "install it");
    EXPECT_EQ(json["modules"][0], "nvidia 570.86");
    EXPECT_EQ(json["pin"], "in place");
}

TEST(ExporterReport, NamesAnExporterThatIsNotInThisBuild) {
    const ExporterInfo info{.name = "cuda",
                            .memory = "NVIDIA GPU",
                            .availability = Availability::no("this build does not contain it")};
    EXPECT_THAT(to_text({{info}}, {}), HasSubstr("not in this build of rdmabuf\n"));
}

} // namespace

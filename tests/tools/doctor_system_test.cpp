// SPDX-License-Identifier: BSD-3-Clause
//
// The conditions of `rdmabuf doctor` on what the libraries, the drivers and the kernel report, and
// the selection of GPUs and NICs.
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checked_condition.hpp"

namespace rdmabuf::tools::doctor {
namespace {

using rdmabuf::testing::check_condition;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Returns the only finding of a condition.
Finding check_one(std::string_view machine, std::string_view id, const SystemQueries& system) {
    const std::vector<Finding> findings = check_condition(machine, id, system);
    if (findings.size() != 1) {
        throw std::runtime_error(std::to_string(findings.size()) + " findings in place of one");
    }
    return findings.front();
}

SystemQueries without_function(std::string_view missing) {
    return {.has_function = [missing](std::string_view name, std::string_view) {
        return name != missing;
    }};
}

TEST(DoctorSystemTest, ALibibverbsWithoutDmaBufsFails) {
    const Finding old = check_one("nothing", "C-01", without_function("ibv_reg_dmabuf_mr"));
    EXPECT_EQ(old.verdict, Verdict::fail);
    EXPECT_EQ(old.severity, Severity::blocks);
    EXPECT_THAT(old.advice.remedy, HasSubstr("rdma-core 34"));
    EXPECT_EQ(check_one("nothing", "C-01", without_function("")).verdict, Verdict::pass);
}

TEST(DoctorSystemTest, EachNewerFunctionThatIsMissingHasItsUse) {
    const Finding old = check_one("nothing", "C-02", without_function("ibv_dm_export_dmabuf_fd"));
    EXPECT_EQ(old.verdict, Verdict::fail);
    EXPECT_EQ(old.found, "missing: ibv_dm_export_dmabuf_fd");
    EXPECT_EQ(old.advice.means, "Needed only for the export of NIC memory (rdma-core 62).");
    EXPECT_EQ(check_one("nothing", "C-02", without_function("")).verdict, Verdict::pass);
}

TEST(DoctorSystemTest, CompletionCountersOfEfaNeedTheKernelAndTheLibrary) {
    const Finding old = check_one("efa", "C-58", without_function("ibv_create_comp_cntr"));
    EXPECT_EQ(old.verdict, Verdict::fail);
    EXPECT_THAT(old.found, HasSubstr("no ibv_create_comp_cntr()"));
    EXPECT_THAT(old.found, HasSubstr("kernel "));
    EXPECT_THAT(check_condition("below_a_switch", "C-58", without_function("")), IsEmpty());
}

TEST(DoctorSystemTest, TwoLibibverbsInTheProcessFail) {
    // Both machines have a recorded /proc/self/maps.
    const Finding two = check_one("across_host_bridges", "C-03", {});
    EXPECT_EQ(two.verdict, Verdict::fail);
    EXPECT_EQ(two.found,
              "/opt/app/libibverbs.so.1, /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0");
    const Finding one = check_one("below_a_switch", "C-03", {});
    EXPECT_EQ(one.verdict, Verdict::pass);
    EXPECT_EQ(one.found, "/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0");
}

TEST(DoctorSystemTest, ForkSupportFailsOnlyWhereTheKernelDoesNotNeedIt) {
    const SystemQueries unneeded{.fork_status = [] { return IBV_FORK_UNNEEDED; }};
    const SystemQueries needed{.fork_status = [] { return IBV_FORK_ENABLED; }};
    // The environment of the process has RDMAV_FORK_SAFE.
    const Finding finding = check_one("across_host_bridges", "C-53", unneeded);
    EXPECT_EQ(finding.verdict, Verdict::fail);
    EXPECT_EQ(finding.advice.remedy, "Unset the variable.");
    EXPECT_EQ(check_one("across_host_bridges", "C-53", needed).verdict, Verdict::pass);
    EXPECT_EQ(check_one("below_a_switch", "C-53", unneeded).verdict, Verdict::pass);
}

TEST(DoctorSystemTest, AMissingDeviceNodeExplainsWhyNoObjectCanBeMade) {
    const auto findings = check_condition("container", "C-08", SystemQueries{});
    EXPECT_EQ(findings.at(0).verdict, Verdict::unknown);
    EXPECT_THAT(findings.at(0).found, HasSubstr("C-20"));
    EXPECT_EQ(findings.at(2).verdict, Verdict::fail) << "mlx5_2 has a node";
    EXPECT_THAT(findings.at(2).advice.remedy, HasSubstr("ibverbs-providers"));
}

TEST(DoctorSystemTest, AnAlmostFullBar1Fails) {
    constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20U;
    const auto check_free = [](std::uint64_t free) {
        return check_one("below_a_switch", "C-35", {.bar1 = [free](const std::string& address) {
                             EXPECT_EQ(address, "0000:03:00.0");
                             return std::optional(Bar1{.total = 256 * mebibyte, .free = free});
                         }});
    };
    const Finding full = check_free(63 * mebibyte);
    EXPECT_EQ(full.verdict, Verdict::fail);
    EXPECT_EQ(full.found, "63 of 256 MiB are free");
    EXPECT_THAT(full.advice.remedy, HasSubstr("C-34"));
    EXPECT_EQ(check_free(64 * mebibyte).verdict, Verdict::pass);
    EXPECT_EQ(check_one("below_a_switch", "C-35",
                        {.bar1 = [](const std::string&) { return std::optional<Bar1>(); }})
                  .verdict,
              Verdict::unknown);
}

TEST(DoctorSystemTest, AnExporterThatCannotBeUsedFailsItsCondition) {
    struct Case {
        const char* machine;
        const char* id;
        std::string exporter;
    };
    for (const Case& each :
         {Case{"amd_small_bar", "C-48", "rocm"}, Case{"efa", "C-50", "habana"}}) {
        std::string asked;
        const Finding finding =
            check_one(each.machine, each.id, {.exporter = [&asked](const std::string& exporter) {
                          asked = exporter;
                          return Availability::no("refused: EPERM", "load another driver");
                      }});
        EXPECT_EQ(asked, each.exporter);
        EXPECT_EQ(finding.verdict, Verdict::fail) << each.id;
        EXPECT_EQ(finding.severity, Severity::blocks) << each.id;
        EXPECT_EQ(finding.found, "refused: EPERM");
        EXPECT_EQ(finding.advice.remedy, "load another driver");
        EXPECT_EQ(check_one(each.machine, each.id,
                            {.exporter = [](const std::string&) { return Availability::yes(); }})
                      .verdict,
                  Verdict::pass)
            << each.id;
    }
}

/// Returns the queries of a kernel in which mlx5_0 has @p regions memory regions of at most 100.
SystemQueries with_regions(std::uint64_t regions) {
    return {.resources = [regions] {
        return resources::Report{
            .devices = {{.name = "mlx5_0",
                         .counts = {{"mr", regions}, {"qp", 2}, {"ctx", 1}},
                         .limits = {{"mr", 100}, {"qp", 50}, {"srq", 0}}},
                        {.name = "other", .counts = {{"mr", 100}}, .limits = {{"mr", 100}}}}};
    }};
}

Finding check_regions(std::uint64_t regions) {
    for (const Finding& finding :
         check_condition("below_a_switch", "C-54", with_regions(regions))) {
        if (finding.subject == std::vector<std::string>{"mlx5_0"}) {
            return finding;
        }
        EXPECT_NE(finding.subject, std::vector<std::string>{"other"}) << "not a device of sysfs";
    }
    throw std::runtime_error("no finding for mlx5_0");
}

TEST(DoctorSystemTest, VerbsObjectsNearTheLimitOfTheDeviceFail) {
    const Finding few = check_regions(89);
    EXPECT_EQ(few.verdict, Verdict::pass);
    EXPECT_EQ(few.found, "mr 89 of 100, qp 2 of 50");
    const Finding many = check_regions(90);
    EXPECT_EQ(many.verdict, Verdict::fail);
    EXPECT_EQ(many.found, "mr 90 of 100");
    EXPECT_THAT(many.advice.remedy, HasSubstr("rdmabuf resources"));
}

/// Returns the subjects of the distances between GPUs and NICs, each as one text.
std::vector<std::string> pairs_of(const Options& options) {
    std::vector<std::string> pairs;
    for (const Finding& finding : check_condition("no_iommu", "C-28", std::nullopt, options)) {
        pairs.push_back(finding.subject.at(0) + " " + finding.subject.at(1));
    }
    return pairs;
}

TEST(DoctorSelectionTest, EachGpuIsPairedWithItsNearestNicOrAsTheOptionsSay) {
    EXPECT_THAT(pairs_of({}), ElementsAre("0000:03:00.0 mlx5_0", "0000:04:00.0 mlx5_0"));
    EXPECT_THAT(pairs_of({.pair = true}),
                ElementsAre("0000:03:00.0 mlx5_0", "0000:03:00.0 mlx5_1", "0000:04:00.0 mlx5_0",
                            "0000:04:00.0 mlx5_1"));
    EXPECT_THAT(pairs_of({.gpu = "1"}), ElementsAre("0000:04:00.0 mlx5_0"));
    std::string subjects;
    for (const Finding& finding : check_condition("no_iommu", "C-32", std::nullopt, {.gpu = "1"})) {
        subjects += finding.subject.at(0) + " ";
    }
    EXPECT_EQ(subjects, "0000:04:00.0 mlx5_0 mlx5_1 ");
    EXPECT_THAT(pairs_of({.device = "mlx5_1"}),
                ElementsAre("0000:03:00.0 mlx5_1", "0000:04:00.0 mlx5_1"));
    EXPECT_THAT(pairs_of({.device = "mlx5_7"}), IsEmpty());
}

TEST(DoctorSystemTest, RegistersThatOnlyRootCanReadHaveACommand) {
    const Finding finding = check_one("across_host_bridges", "C-31", {});
    EXPECT_EQ(finding.verdict, Verdict::unknown);
    EXPECT_THAT(finding.advice.command,
                AllOf(HasSubstr("0000:80:01.0 0000:80:03.0"), HasSubstr("lspci -vvv -s $bridge"),
                      Not(HasSubstr("\n"))));
}

} // namespace
} // namespace rdmabuf::tools::doctor

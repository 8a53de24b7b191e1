// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perf/report.hpp"

#include <nlohmann/json.hpp>

namespace {

using namespace rdmabuf::tools::perf;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;

class PerfReport : public testing::Test {
  protected:
    PerfReport() {
        options.loopback = true;
        options.verb = Verb::write;
        options.memory.type = "drm";
        options.size = 1000000;
        options.iterations = 20;
        options.warmup = 2;
        options.depth = 16;
        options.check = true;
        setting.device = "rxe0";
        setting.origin = {.path = "dmabuf", .exporter = "drm", .detail = "/dev/dri/card0, vgem"};
        result.figures = {.min = 1,
                          .mean = 1024,
                          .p50 = 900,
                          .p99 = 1500,
                          .p999 = 2500,
                          .max = 3e6,
                          .elapsed = 10000};
        result.checked = {.data = 22000000, .guard = 5};
    }

    Options options;
    Setting setting;
    Result result;
};

TEST_F(PerfReport, TheLastLineSaysWhatWasCheckedInWhatMemory) {
    EXPECT_THAT(format_table(options, setting, result),
                EndsWith("\nchecked 22000000 bytes over dmabuf from drm (/dev/dri/card0, vgem) "
                         "on rxe0\n"));
}

TEST_F(PerfReport, TheLastLineSaysThatNothingWasChecked) {
    options.check = false;
    EXPECT_THAT(format_table(options, setting, result),
                EndsWith("\nnot checked: 20 transfers over dmabuf from drm "
                         "(/dev/dri/card0, vgem) on rxe0\n"));
}

TEST_F(PerfReport, AnEndThatReceivesNothingCountsTheBytesThatStayedTheSame) {
    result.checked.data = 0;
    EXPECT_THAT(format_table(options, setting, result),
                HasSubstr("\nchecked 5 bytes that the other end had to leave unchanged over"));
}

TEST_F(PerfReport, MemoryWithoutADmaBufHasNoExporter) {
    setting.origin = {.path = "dm", .exporter = {}, .detail = {}};
    EXPECT_THAT(format_table(options, setting, result),
                EndsWith("\nchecked 22000000 bytes over dm on rxe0\n"));
    const auto json = nlohmann::json::parse(format_json(options, setting, result));
    EXPECT_TRUE(json["exporter"].is_null());
    EXPECT_EQ(json["path"], "dm") << "that of the registration, whatever memory the options name";
}

TEST_F(PerfReport, TheTableHasTheFiguresInUnitsThatPeopleRead) {
    const std::string table = format_table(options, setting, result);
    EXPECT_THAT(table, HasSubstr("write of 1000000 bytes, 16 in flight"));
    EXPECT_THAT(table, ContainsRegex("min +typical +99 % +99.9 % +max\n"));
    EXPECT_THAT(table, ContainsRegex("latency +1.00 us +900 us +1.50 ms +2.50 ms +3.00 s\n"));
    EXPECT_THAT(table, HasSubstr("of half a round trip, with the time of --check\n"));
    EXPECT_THAT(table, ContainsRegex("bandwidth +2.00 GB/s +in each direction\n"));
    EXPECT_THAT(table, ContainsRegex("message rate +2.00 k/s +in each direction\n"));
}

TEST_F(PerfReport, ReadsAndAtomicsMoveDataInOneDirection) {
    options.verb = Verb::read;
    const std::string table = format_table(options, setting, result);
    EXPECT_THAT(table, HasSubstr("of the whole operation"));
    EXPECT_THAT(table, ContainsRegex("bandwidth +2.00 GB/s\n"));
}

TEST_F(PerfReport, JsonIsOneObjectWithEveryField) {
    const auto json = nlohmann::json::parse(format_json(options, setting, result));
    EXPECT_EQ(json["memory"], "drm");
    EXPECT_EQ(json["exporter"], "drm");
    EXPECT_EQ(json["exporter_detail"], "/dev/dri/card0, vgem");
    EXPECT_EQ(json["path"], "dmabuf");
    EXPECT_EQ(json["device"], "rxe0");
    EXPECT_EQ(json["port"], 1);
    EXPECT_TRUE(json["gid"].is_null());
    EXPECT_EQ(json["qp_type"], "RC");
    EXPECT_EQ(json["verb"], "write");
    EXPECT_EQ(json["role"], "loopback");
    EXPECT_EQ(json["connection"], "loopback");
    EXPECT_EQ(json["size"], 1000000);
    EXPECT_EQ(json["depth"], 16);
    EXPECT_EQ(json["iterations"], 20);
    EXPECT_EQ(json["warmup"], 2);
    EXPECT_EQ(json["checked_bytes"], 22000000);
    EXPECT_EQ(json["guard_bytes"], 5);
    EXPECT_EQ(json["latency_usec"]["min"], 1);
    EXPECT_EQ(json["latency_usec"]["mean"], 1024);
    EXPECT_EQ(json["latency_usec"]["p50"], 900);
    EXPECT_EQ(json["latency_usec"]["p99"], 1500);
    EXPECT_EQ(json["latency_usec"]["p999"], 2500);
    EXPECT_EQ(json["latency_usec"]["max"], 3000000);
    EXPECT_EQ(json["elapsed_usec"], 10000);
    EXPECT_EQ(json["bandwidth_MBps"], 2000);
    EXPECT_EQ(json["messages_per_second"], 2000);
}

} // namespace

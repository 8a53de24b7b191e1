// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report.hpp"

#include <nlohmann/json.hpp>

namespace {

using namespace pingpong;
using testing::EndsWith;
using testing::HasSubstr;

class PingpongReport : public testing::Test {
  protected:
    PingpongReport() {
        options.verb = Verb::write;
        options.memory.type = MemoryType::drm;
        options.size = 1048576;
        options.iterations = 20;
        options.warmup = 2;
        options.validate = true;
        setting.device = "rxe0";
        setting.origin = {.path = "dmabuf", .exporter = "drm", .detail = "/dev/dri/card0, vgem"};
        result.figures = {
            .min = 1, .mean = 1024, .p50 = 900, .p99 = 1500, .p999 = 2500, .max = 3e6};
        result.validated = {.data = 46137344, .guard = 5};
    }

    Options options;
    Setting setting;
    Result result;
};

TEST_F(PingpongReport, TheLastLineSaysWhatWasValidatedOverWhat) {
    EXPECT_THAT(format_table(options, setting, result),
                EndsWith("\nvalidated 46137344 bytes over dmabuf from drm (/dev/dri/card0, vgem) "
                         "on rxe0\n"));
}

TEST_F(PingpongReport, TheLastLineSaysThatNothingWasValidated) {
    options.validate = false;
    EXPECT_THAT(format_table(options, setting, result),
                EndsWith("\nnot validated: 20 transfers over dmabuf from drm "
                         "(/dev/dri/card0, vgem) on rxe0\n"));
}

TEST_F(PingpongReport, MemoryThatNobodyExportedHasNoExporter) {
    setting.origin = {.path = "dm", .exporter = {}, .detail = {}};
    EXPECT_THAT(format_table(options, setting, result),
                EndsWith("\nvalidated 46137344 bytes over dm on rxe0\n"));
    EXPECT_TRUE(nlohmann::json::parse(format_json(options, setting, result))["exporter"].is_null());
}

TEST_F(PingpongReport, TheTableHasTheFiguresInUnitsThatPeopleRead) {
    const std::string table = format_table(options, setting, result);
    EXPECT_THAT(table, HasSubstr("900 us    1.50 ms    2.50 ms     3.00 s   of half a round trip"));
    EXPECT_THAT(table, HasSubstr("1.02 GB/s"));
    EXPECT_THAT(table, HasSubstr("write, 1 MiB, 20 times"));
}

TEST_F(PingpongReport, ReadAndAtomicsSayThatTheyAreWholeOperations) {
    options.verb = Verb::read;
    EXPECT_THAT(format_table(options, setting, result), HasSubstr("of a whole operation"));
}

TEST_F(PingpongReport, JsonIsOneObjectWithEveryField) {
    const auto json = nlohmann::json::parse(format_json(options, setting, result));
    EXPECT_EQ(json["memory"], "drm");
    EXPECT_EQ(json["exporter"], "drm");
    EXPECT_EQ(json["path"], "dmabuf");
    EXPECT_EQ(json["device"], "rxe0");
    EXPECT_EQ(json["verb"], "write");
    EXPECT_EQ(json["role"], "loopback");
    EXPECT_EQ(json["size"], 1048576);
    EXPECT_EQ(json["iterations"], 20);
    EXPECT_EQ(json["warmup"], 2);
    EXPECT_EQ(json["validated_bytes"], 46137344);
    EXPECT_EQ(json["guard_bytes"], 5);
    EXPECT_EQ(json["latency_usec"]["p50"], 900);
    EXPECT_EQ(json["latency_usec"]["p99"], 1500);
    EXPECT_EQ(json["latency_usec"]["p999"], 2500);
    EXPECT_EQ(json["latency_usec"]["max"], 3000000);
    EXPECT_EQ(json["bandwidth_MBps"], 1024);
}

// What was asked for and what was done must be told apart.
TEST_F(PingpongReport, ThePathIsThatOfTheRegistration) {
    setting.origin.path = "host";
    EXPECT_EQ(nlohmann::json::parse(format_json(options, setting, result))["path"], "host");
}

} // namespace

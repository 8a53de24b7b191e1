// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <initializer_list>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "options.hpp"

namespace {

using namespace pingpong;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

Options parsed(std::initializer_list<const char*> arguments) {
    const std::vector<const char*> list(arguments);
    return std::get<Options>(parse_options(list));
}

// What the user is told.
std::string refusal(std::initializer_list<const char*> arguments) {
    try {
        parsed(arguments);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "not refused";
}

TEST(PingpongOptions, DefaultsAreAShortRunInHostMemory) {
    const Options options = parsed({"--loopback"});
    EXPECT_EQ(options.mode, Mode::loopback);
    EXPECT_EQ(options.memory.type, MemoryType::host);
    EXPECT_EQ(options.verb, Verb::send);
    EXPECT_EQ(options.size, 4096U);
    EXPECT_EQ(options.iterations, 1000U);
    EXPECT_EQ(options.warmup, 100U);
    EXPECT_EQ(options.timeout, seconds(30));
    EXPECT_EQ(options.tcp_port, 18520);
    EXPECT_EQ(options.port, 1);
    EXPECT_FALSE(options.gid_index);
    EXPECT_FALSE(options.validate);
    EXPECT_FALSE(options.json);
}

TEST(PingpongOptions, TakesEveryOption) {
    const Options options = parsed({"--connect",
                                    "peer.example",
                                    "--bootstrap",
                                    "tcp",
                                    "--tcp-port",
                                    "4711",
                                    "--verb",
                                    "write-imm",
                                    "--size",
                                    "64K",
                                    "--iterations",
                                    "7",
                                    "--warmup",
                                    "0",
                                    "--validate",
                                    "--memory",
                                    "drm",
                                    "--drm-node",
                                    "/dev/dri/card3",
                                    "--device",
                                    "mlx5_1",
                                    "--port",
                                    "2",
                                    "--gid-index",
                                    "3",
                                    "--timeout",
                                    "5",
                                    "--json"});
    EXPECT_EQ(options.mode, Mode::connect);
    EXPECT_EQ(options.role(), Role::initiator);
    EXPECT_EQ(options.host, "peer.example");
    EXPECT_EQ(options.bootstrap, Bootstrap::tcp);
    EXPECT_EQ(options.tcp_port, 4711);
    EXPECT_EQ(options.verb, Verb::write_imm);
    EXPECT_EQ(options.size, 65536U);
    EXPECT_EQ(options.iterations, 7U);
    EXPECT_EQ(options.warmup, 0U);
    EXPECT_TRUE(options.validate);
    EXPECT_EQ(options.memory.type, MemoryType::drm);
    EXPECT_EQ(options.memory.drm_node, "/dev/dri/card3");
    EXPECT_EQ(options.device, "mlx5_1");
    EXPECT_EQ(options.port, 2);
    EXPECT_EQ(options.gid_index, 3);
    EXPECT_EQ(options.timeout, seconds(5));
    EXPECT_TRUE(options.json);
}

TEST(PingpongOptions, TheListeningEndResponds) {
    EXPECT_EQ(parsed({"--listen"}).mode, Mode::listen);
    EXPECT_EQ(parsed({"--listen"}).role(), Role::responder);
}

TEST(PingpongOptions, WarmsUpForATenthOfTheIterations) {
    EXPECT_EQ(parsed({"--loopback", "--iterations", "20"}).warmup, 2U);
    EXPECT_EQ(parsed({"--loopback", "--iterations", "1"}).warmup, 1U);
}

TEST(PingpongOptions, AtomicsAreOfEightBytesByDefault) {
    EXPECT_EQ(parsed({"--loopback", "--verb", "cas"}).size, 8U);
    EXPECT_EQ(parsed({"--loopback", "--verb", "fadd", "--size", "8"}).size, 8U);
}

TEST(PingpongOptions, EveryNameOfAMemoryAndAVerbReadsAsItIsPrinted) {
    for (const auto& memory : examples::memory_types) {
        const auto options = parsed({"--loopback", "--memory", memory.name.data()});
        EXPECT_EQ(options.memory.type, memory.value);
        EXPECT_EQ(to_string(options.memory.type), memory.name);
    }
    for (const auto& verb : verbs) {
        const auto options = parsed({"--loopback", "--verb", verb.name.data()});
        EXPECT_EQ(options.verb, verb.value);
        EXPECT_EQ(to_string(options.verb), verb.name);
    }
}

TEST(PingpongOptions, HelpIsPrintedAndNotRun) {
    const std::vector<const char*> arguments{"--help"};
    const auto help = std::get<Help>(parse_options(arguments));
    EXPECT_THAT(help.text, AllOf(HasSubstr("--loopback"), HasSubstr("half a round trip"),
                                 HasSubstr("Examples:"), HasSubstr("Exit status:")));
}

TEST(PingpongOptions, OneModeMustBeChosen) {
    EXPECT_THAT(refusal({}), HasSubstr("--listen, --connect HOST, or --loopback"));
    EXPECT_THAT(refusal({"--listen", "--loopback"}), HasSubstr("only one of the ends"));
    EXPECT_THAT(refusal({"--listen", "--connect", "a"}), HasSubstr("only one of the ends"));
}

TEST(PingpongOptions, ALoopbackMeetsNobody) {
    EXPECT_THAT(refusal({"--loopback", "--bootstrap", "rdmacm"}),
                HasSubstr("--bootstrap is about"));
    EXPECT_THAT(refusal({"--loopback", "--tcp-port", "5"}), HasSubstr("--tcp-port is about"));
}

TEST(PingpongOptions, AnAtomicOfAnotherSizeIsRefusedWithTheRemedy) {
    EXPECT_EQ(refusal({"--loopback", "--verb", "cas", "--size", "16"}),
              "--verb cas works on 8 bytes: leave out --size 16, or say --size 8");
}

TEST(PingpongOptions, SizesThatAreNoneAreRefused) {
    for (const char* size : {"0", "x", "1Q", "-1", "1.5M", " 8", "20000000000G"}) {
        EXPECT_THAT(refusal({"--loopback", "--size", size}), HasSubstr("is no number of bytes"))
            << size;
    }
    EXPECT_THAT(refusal({"--loopback", "--size", "3G"}),
                HasSubstr("more than a message can carry"));
}

TEST(PingpongOptions, UnknownNamesAreRefusedWithThoseThereAre) {
    EXPECT_EQ(refusal({"--loopback", "--memory", "gpu"}),
              "--memory gpu is not one of: host, cuda, habana, level-zero, neuron, rocm, udmabuf, "
              "dma-heap, drm, memfd, external, dm");
    EXPECT_EQ(refusal({"--loopback", "--verb", "swap"}),
              "--verb swap is not one of: send, write, write-imm, read, cas, fadd");
    EXPECT_THAT(refusal({"--listen", "--bootstrap", "mpi"}), HasSubstr("tcp, rdmacm"));
    EXPECT_THAT(refusal({"--loopback", "--fast"}), HasSubstr("--fast"));
}

TEST(PingpongOptions, WhatAMemoryDoesNotUseIsRefused) {
    EXPECT_EQ(refusal({"--loopback", "--heap", "system"}), "--heap needs --memory dma-heap");
    EXPECT_EQ(refusal({"--loopback", "--drm-node", "a"}), "--drm-node needs --memory drm");
    EXPECT_EQ(refusal({"--loopback", "--memory", "dm", "--drm-driver", "vgem"}),
              "--drm-driver needs --memory drm");
    EXPECT_THAT(refusal({"--loopback", "--memory", "drm", "--drm-node", "a", "--drm-driver", "b"}),
                HasSubstr("leave one out"));
}

TEST(PingpongOptions, WhatRdmacmDecidesCannotBeChosen) {
    EXPECT_THAT(refusal({"--connect", "a", "--bootstrap", "rdmacm", "--gid-index", "1"}),
                AllOf(HasSubstr("--gid-index"), HasSubstr("--bootstrap tcp")));
    EXPECT_THAT(refusal({"--listen", "--bootstrap", "rdmacm", "--port", "1"}),
                HasSubstr("--port cannot be chosen"));
}

TEST(PingpongOptions, NumbersOutOfRangeAreRefused) {
    EXPECT_THAT(refusal({"--loopback", "--iterations", "0"}), HasSubstr("not in range 1 to"));
    EXPECT_THAT(refusal({"--loopback", "--port", "256"}), HasSubstr("not in range 1 to 255"));
    EXPECT_THAT(refusal({"--loopback", "--gid-index", "256"}), HasSubstr("not in range 0 to 255"));
    EXPECT_THAT(refusal({"--listen", "--timeout", "0"}), HasSubstr("--timeout"));
}

} // namespace

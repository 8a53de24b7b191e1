// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <softverbs/softverbs.h>

#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command.hpp"
#include "sanitizers.hpp"

namespace {

using softverbs_test::address_sanitizer;
using softverbs_test::thread_sanitizer;

std::string file_of(const void* address) {
    Dl_info info{};
    return ::dladdr(address, &info) != 0 ? info.dli_fname : "";
}

std::string libsoftverbs() {
    return file_of(::dlsym(RTLD_DEFAULT, "ibv_reg_dmabuf_mr"));
}

struct Symbol {
    std::string name;
    std::string version; // empty: it has none
};

/// Returns the functions and objects that a library defines for others, with their default
/// versions.
std::vector<Symbol> defined_in(const std::string& library) {
    std::istringstream lines(run_command("nm -D --defined-only '" + library + "'").output);
    std::vector<Symbol> found;
    std::string address;
    std::string type;
    std::string name;
    while (lines >> address >> type >> name) {
        const std::size_t at = name.find('@');
        const bool has_version = at != std::string::npos;
        const bool is_default = !has_version || name.compare(at, 2, "@@") == 0;
        if (is_default && type != "A") { // A: the name of a version
            found.push_back({name.substr(0, at), has_version ? name.substr(at + 2) : ""});
        }
    }
    return found;
}

/// Returns the names of the libraries that the loader loads for a library.
std::vector<std::string> needed_by(const std::string& library) {
    std::istringstream lines(run_command("readelf -dW '" + library + "'").output);
    std::vector<std::string> names;
    for (std::string line; std::getline(lines, line);) {
        if (line.find("(NEEDED)") != std::string::npos) {
            const std::size_t begin = line.find('[') + 1;
            names.push_back(line.substr(begin, line.find(']') - begin));
        }
    }
    return names;
}

TEST(Symbols, HaveTheVersionsThatTheInstalledLibibverbsGivesThem) {
    const std::string real = file_of(::dlvsym(RTLD_DEFAULT, "ibv_get_device_list", "IBVERBS_1.0"));
    ASSERT_THAT(real, testing::HasSubstr("libibverbs.so.1"));
    const std::vector<Symbol> expected = defined_in(real);
    std::size_t verbs = 0;
    for (const Symbol& symbol : defined_in(libsoftverbs())) {
        if (!symbol.name.starts_with("ibv_") && !symbol.name.starts_with("_ibv_")) {
            continue;
        }
        ++verbs;
        for (const Symbol& other : expected) {
            const bool is_private = other.version.starts_with("IBVERBS_PRIVATE");
            if (other.name == symbol.name) {
                EXPECT_EQ(symbol.version, is_private ? std::string() : other.version)
                    << symbol.name << " in softverbs.map";
            }
        }
    }
    EXPECT_GT(verbs, 60U);
    EXPECT_GT(expected.size(), 60U);
}

// Preloaded, the library must not decide which C++ library the program uses.
TEST(Symbols, OfTheCppLibraryAreNeitherNeededNorDefined) {
    if (address_sanitizer || thread_sanitizer) {
        GTEST_SKIP() << "the sanitizers need the shared C++ library";
    }
    const std::vector<std::string> needed = needed_by(libsoftverbs());
    EXPECT_THAT(needed, testing::Contains("libc.so.6"));
    EXPECT_THAT(needed, testing::IsSubsetOf({"libibverbs.so.1", "libm.so.6", "libc.so.6",
                                             "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}));
    std::vector<std::string> names;
    for (const Symbol& symbol : defined_in(libsoftverbs())) {
        names.push_back(symbol.name);
    }
    EXPECT_THAT(names, testing::Contains("softverbs_live"));
    EXPECT_THAT(names,
                testing::Each(testing::Not(testing::ContainsRegex("^(_Z|__cxa|_Unwind|__gxx)"))));
}

struct Version {
    const char* symbol;
    const char* version;
};

class VersionedLookup : public testing::TestWithParam<Version> {};

TEST_P(VersionedLookup, FindsSoftverbsWithAndWithoutTheVersion) {
    const auto& [symbol, version] = GetParam();
    const void* const versioned = ::dlvsym(RTLD_DEFAULT, symbol, version);
    EXPECT_THAT(file_of(versioned), testing::HasSubstr("libsoftverbs.so"));
    EXPECT_EQ(::dlsym(RTLD_DEFAULT, symbol), versioned);
}

INSTANTIATE_TEST_SUITE_P(All, VersionedLookup,
                         testing::Values(Version{"ibv_get_device_list", "IBVERBS_1.1"},
                                         Version{"ibv_reg_mr", "IBVERBS_1.1"},
                                         Version{"ibv_create_comp_channel", "IBVERBS_1.0"},
                                         Version{"ibv_reg_mr_iova2", "IBVERBS_1.8"},
                                         Version{"ibv_query_ece", "IBVERBS_1.10"},
                                         Version{"_ibv_query_gid_ex", "IBVERBS_1.11"},
                                         Version{"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},
                                         Version{"ibv_query_qp_data_in_order", "IBVERBS_1.14"},
                                         Version{"ibv_dm_export_dmabuf_fd", "IBVERBS_1.16"}),
                         [](const auto& parameter) { return std::string(parameter.param.symbol); });

TEST(Symbols, OfSoftverbsItselfHaveNoVersion) {
    EXPECT_EQ(::dlsym(RTLD_DEFAULT, "softverbs_live"), reinterpret_cast<void*>(&softverbs_live));
}

TEST(Symbols, OfAVersionThatDoesNotExistAreNotFound) {
    EXPECT_EQ(::dlvsym(RTLD_DEFAULT, "ibv_reg_dmabuf_mr", "IBVERBS_1.11"), nullptr);
}

TEST(Symbols, OfTheOldestInterfaceAreTheRealLibrarysAndReachTheDevices) {
    // In the old interface, a device structure begins with a pointer to the ibv_device.
    struct OldDevice {
        ibv_device* device;
    };
    const auto get_list = reinterpret_cast<OldDevice** (*)(int*)>(
        ::dlvsym(RTLD_DEFAULT, "ibv_get_device_list", "IBVERBS_1.0"));
    const auto get_name = reinterpret_cast<const char* (*)(OldDevice*)>(
        ::dlvsym(RTLD_DEFAULT, "ibv_get_device_name", "IBVERBS_1.0"));
    const auto free_list = reinterpret_cast<void (*)(OldDevice**)>(
        ::dlvsym(RTLD_DEFAULT, "ibv_free_device_list", "IBVERBS_1.0"));
    ASSERT_NE(get_list, nullptr);
    ASSERT_NE(get_name, nullptr);
    ASSERT_NE(free_list, nullptr);
    int count = 0;
    OldDevice** const list = get_list(&count);
    ASSERT_NE(list, nullptr);
    ASSERT_GE(count, 1);
    EXPECT_STREQ(get_name(list[0]), "soft0");
    free_list(list);
}

} // namespace

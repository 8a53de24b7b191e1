// SPDX-License-Identifier: BSD-3-Clause
#include "common/driver_library.hpp"

#include <dlfcn.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <latch>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include <rdmabuf/providers/cuda.hpp>

#include "child_process.hpp"
#include "common/driver_result.hpp"
#include "common/process_driver.hpp"
#include "cuda/cuda_abi.hpp"
#include "fails_with.hpp"
#include "support.hpp"
#include "temporary_directory.hpp"
#include "waiting.hpp"

namespace {

bool dlopen_has_memory = true;

} // namespace

// The linker sends the calls of dlopen(3) here (--wrap).
extern "C" void* __real_dlopen(const char* name, int flags);  // NOLINT
extern "C" void* __wrap_dlopen(const char* name, int flags);  // NOLINT
extern "C" void* __wrap_dlopen(const char* name, int flags) { // NOLINT
    return dlopen_has_memory ? __real_dlopen(name, flags) : nullptr;
}

namespace rdmabuf::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<DriverLibrary> open(std::initializer_list<const char*> names) {
    return DriverLibrary::open({names.begin(), names.size()}, "Acme driver", "buy an Acme");
}

TEST(DriverLibrary, TellsOfOneThatIsNoLibrary) {
    const auto opened = open({"/dev/null"});
    ASSERT_FALSE(opened);
    EXPECT_THAT(opened.reason(), HasSubstr("/dev/null: file too short"));
}

TEST(DriverLibrary, LoadsTheFirstThatThereIs) {
    const auto opened = open({"libacme.so.1", "libcuda.so.1", LACKING_DRIVER});
    ASSERT_TRUE(opened);
    EXPECT_EQ(opened->name(), "libcuda.so.1");
    EXPECT_NE(opened->symbol("cuMemGetHandleForAddressRange"), nullptr);
    EXPECT_EQ(opened->symbol("acme"), nullptr);
}

// A program can bring a driver's library under another name: PyTorch has a libhsa-runtime64.so of
// its own. A second copy of the driver would not know the memory of the first.
TEST(DriverLibrary, LoadsNoneWhereOneOfTheNamesIsLoaded) {
    const auto opened = open({"libutil.so.1", "libcuda.so.1"});
    ASSERT_TRUE(opened);
    EXPECT_EQ(opened->name(), "libcuda.so.1");
    EXPECT_TRUE(open({"libutil.so.1"})) << "the first name exists, too";
}

TEST(LoadedLibrarySearch, SearchesAgainAfterMemoryWasExhausted) {
    LoadedLibrarySearch search;
    constexpr std::array names{"libcuda.so.1"};
    dlopen_has_memory = false;
    EXPECT_THROW(static_cast<void>(search.find(names)), std::bad_alloc);
    dlopen_has_memory = true;
    EXPECT_TRUE(search.find(names));
}

/// A driver whose functions are looked up until the test ends this.
struct SlowDriver {
    static Result<SlowDriver> make(const DriverLibrary& /*library*/) {
        if (slow) {
            looking.count_down();
            found.wait();
        }
        return SlowDriver{};
    }

    static inline bool slow = true;
    static inline std::latch looking{1};
    static inline std::latch found{1};
};

TEST(ProcessDriver, IsFoundInAForkedChildWhileAThreadOfTheParentLooksForIt) {
    static const std::array names{"libcuda.so.1"};
    // Like that of a driver, it is never destroyed.
    static auto& driver = *new ProcessDriver<SlowDriver>(names, "Acme driver", "buy an Acme");
    const SlowDriver* first = nullptr;
    std::thread thread([&] { first = driver.loaded(); });
    SlowDriver::looking.wait();
    expect_success(fork_child(testing::time_limit, [&] {
        SlowDriver::slow = false;
        return driver.loaded() != nullptr ? 0 : 1;
    }));
    SlowDriver::slow = false;
    const SlowDriver* second = nullptr;
    std::thread other([&] { second = driver.loaded(); });
    SlowDriver::found.count_down();
    thread.join();
    other.join();
    EXPECT_NE(first, nullptr);
    EXPECT_EQ(first, second);
}

/// A driver that knows the name of its library.
struct CopiedDriver {
    static Result<CopiedDriver> make(const DriverLibrary& library) {
        return CopiedDriver{library.name()};
    }
    std::string name;
};

TEST(ProcessDriver, RefusesMemoryOfACopyThatIsLoadedLater) {
    static const std::array names{"libcuda.so.1", "libcuda.so"};
    // Like that of a driver, it is never destroyed.
    static auto& driver = *new ProcessDriver<CopiedDriver>(names, "Acme driver", "buy an Acme");
    ASSERT_NE(driver.loaded(), nullptr);
    const TemporaryDirectory directory;
    const std::string path = directory.path() + "/libcuda.so.7";
    std::vector<std::string> queried;
    const auto check = [&](bool known) {
        queried.clear();
        return testing::error_of([&] {
            driver.check_other_copies(0x1000, [&](const CopiedDriver& other) {
                queried.push_back(other.name);
                return known;
            });
        });
    };
    EXPECT_FALSE(check(true));
    std::filesystem::copy_file(LACKING_DRIVER, path);
    void* const copy = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(copy, nullptr) << ::dlerror();
    EXPECT_FALSE(check(false));
    EXPECT_THAT(queried, ElementsAre(path));
    EXPECT_THAT(check(true), testing::fails_with("dlopen", EEXIST, "0x1000 is of " + path));
    EXPECT_EQ(driver.loaded()->name, "libcuda.so.1");
    EXPECT_EQ(::dlclose(copy), 0);
}

#ifndef RDMABUF_SANITIZED // sanitizers refuse RTLD_DEEPBIND
TEST(ProcessDriver, MemoryOfAnotherCopyOfCudaIsNotHostMemory) {
    void* const copy = ::dlopen(OTHER_CUDA, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    ASSERT_NE(copy, nullptr) << ::dlerror();
    const auto call = [copy]<class... Arguments>(const char* name, Arguments... arguments) {
        auto* const function =
            reinterpret_cast<cuda::Result (*)(Arguments...)>(::dlsym(copy, name));
        EXPECT_EQ(function(arguments...), cuda::success) << name;
    };
    cuda::Context context = nullptr;
    cuda::DevicePointer address = 0;
    call("cuInit", 0U);
    call("cuDevicePrimaryCtxRetain", &context, 0);
    call("cuCtxPushCurrent_v2", context);
    call("cuMemAlloc_v2", &address, std::size_t{4096});
    const auto exporter = make_cuda_exporter();
    EXPECT_THAT(testing::error_of([&] { static_cast<void>(exporter->find(address)); }),
                testing::fails_with("dlopen", EEXIST, OTHER_CUDA));
    EXPECT_FALSE(exporter->find(reinterpret_cast<std::uintptr_t>(&context)));
    call("cuMemFree_v2", address);
    EXPECT_FALSE(exporter->find(address));
    call("cuCtxPopCurrent_v2", &context);
    call("cuDevicePrimaryCtxRelease_v2", 0);
}
#endif

TEST(DriverFailure, HasNoRemedyWhereNobodyKnowsOne) {
    const DriverFailure failure{"ACME_FAILED (1)", EIO, nullptr};
    const auto error = testing::error_of([&] { failure.raise("acmeExport", "8 bytes at 0x10"); });
    EXPECT_THAT(error, testing::fails_with("acmeExport", EIO));
    EXPECT_EQ(error->hint(), "ACME_FAILED (1): 8 bytes at 0x10");
}

} // namespace
} // namespace rdmabuf::detail

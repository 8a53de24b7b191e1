// SPDX-License-Identifier: BSD-3-Clause
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command.hpp"
#include "temporary_directory.hpp"

// CMakeLists.txt defines the paths SOFTVERBS_COMMAND, SOFTVERBS_PRELOAD and LOADED_BY_DLOPEN.

namespace {

using testing::AllOf;
using testing::HasSubstr;

class LauncherTest : public testing::Test {
  protected:
    /// Runs `softverbs` with these arguments, in a rendezvous directory of this test.
    CommandResult softverbs(const std::string& arguments, const std::string& variables = "") {
        return run_command("env SOFTVERBS_DIR=" + directory_.path() + " " + variables + " " +
                           SOFTVERBS_COMMAND + " " + arguments);
    }
    CommandResult run(const std::string& arguments) { return softverbs("run " + arguments); }

    std::string script(const std::string& name, const std::string& text, mode_t mode = 0755) {
        std::string path = directory_.path() + "/" + name;
        std::ofstream(path) << text;
        ::chmod(path.c_str(), mode);
        return path;
    }

    TemporaryDirectory directory_;
};

TEST_F(LauncherTest, GivesTheDeviceToAProgramThatSearchesAllLibraries) {
    const CommandResult result = run(std::string("-- ") + LOADED_BY_DLOPEN + " default");
    EXPECT_EQ(result.output, "device soft0\nok 4096\n");
}

TEST_F(LauncherTest, IsNotNeededByAProgramThatSearchesAllLibrariesUnderLdPreload) {
    const CommandResult result =
        run_command("env SOFTVERBS_DIR=" + directory_.path() +
                    " LD_PRELOAD=" SOFTVERBS_PRELOAD " " LOADED_BY_DLOPEN " default");
    EXPECT_EQ(result.output, "device soft0\nok 4096\n");
}

TEST_F(LauncherTest, GivesTheFunctionsOfEfaToAProgramThatLoadsLibefaItself) {
    const CommandResult result = run(std::string("--profile efa -- ") + LOADED_BY_DLOPEN + " efa");
    EXPECT_EQ(result.output, "capabilities 0xf\n");
    EXPECT_EQ(result.exit_status, 0);
    // The device of another profile is not an EFA device.
    EXPECT_NE(run(std::string("-- ") + LOADED_BY_DLOPEN + " efa").exit_status, 0);
}

TEST_F(LauncherTest, LetsTheLibrariesLoadThatAreLinkedWithLibibverbs) {
    // Providers use private symbols of libibverbs.so.1, which the front library does not define.
    for (const char* const library : {"libmlx5.so.1", "libefa.so.1", "librdmacm.so.1"}) {
        const CommandResult result =
            run(std::string("-- ") + LOADED_BY_DLOPEN + " provider " + library);
        EXPECT_EQ(result.output, "loaded\n");
    }
}

TEST_F(LauncherTest, MakesAsManyDevicesAsRequestedOfTheProfileAndLinkLayer) {
    const CommandResult result =
        run("--devices 3 --profile mlx5 --link-layer ethernet --only -- "
            "ibv_devinfo -d soft2");
    EXPECT_THAT(result.output, AllOf(HasSubstr("0x02c9"), HasSubstr("Ethernet")));
    EXPECT_EQ(softverbs("devices --devices 2 --only").output.find("soft2"), std::string::npos);
    EXPECT_THAT(softverbs("devices --devices 2 --only").output,
                AllOf(HasSubstr("soft0"), HasSubstr("soft1"), HasSubstr("InfiniBand")));
}

TEST_F(LauncherTest, InjectsFaults) {
    const CommandResult result = run("--faults open_device=EMFILE ibv_devinfo");
    EXPECT_THAT(result.output, HasSubstr("Failed to open device"));
    EXPECT_NE(result.exit_status, 0);
}

TEST_F(LauncherTest, GivesTheDeviceToChildren) {
    const CommandResult result = run("-- sh -c 'sh -c ibv_devices'");
    EXPECT_THAT(result.output, HasSubstr("soft0"));
}

TEST_F(LauncherTest, CanRunItself) {
    const CommandResult result = run(std::string("-- ") + SOFTVERBS_COMMAND +
                                     " run --devices 2 -- " + LOADED_BY_DLOPEN + " dlopen");
    EXPECT_EQ(result.output, "device soft0\nok 4096\n");
    EXPECT_EQ(result.exit_status, 0);
}

TEST_F(LauncherTest, PassesTheExitStatusOfTheCommandOn) {
    EXPECT_EQ(run("-- sh -c 'exit 42'").exit_status, 42);
}

TEST_F(LauncherTest, PassesOptionsBehindTheCommandOn) {
    EXPECT_EQ(run("echo --devices 2 -x").output, "--devices 2 -x\n");
    EXPECT_EQ(run("-- echo --devices 2 -- -x").output, "--devices 2 -- -x\n");
}

TEST_F(LauncherTest, NamesTheProfilesWhenOneIsUnknown) {
    const CommandResult result = run("--profile mlx6 -- true");
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("there is no profile \"mlx6\""),
                      HasSubstr("default, mlx5, efa, bnxt, irdma, rxe, old-kernel, small-mr")));
    EXPECT_EQ(result.exit_status, 2);
}

TEST_F(LauncherTest, RefusesAnUnknownOptionBeforeTheCommand) {
    const CommandResult result = run("--profle mlx5 -- true");
    EXPECT_EQ(result.output,
              "softverbs: run has no option '--profle'\n"
              "Try \"softverbs --help\" or \"softverbs run --help\".\n");
    EXPECT_EQ(result.exit_status, 2);
    EXPECT_EQ(run("-x").exit_status, 2);
    EXPECT_EQ(run("--profile mlx5 -- true").exit_status, 0);
}

TEST_F(LauncherTest, DescribesEachProfileInItsHelp) {
    const std::string help = run("--help").output;
    for (const char* const name :
         {"default", "mlx5", "efa", "bnxt", "irdma", "rxe", "old-kernel", "small-mr"}) {
        EXPECT_THAT(help, HasSubstr(std::string("\n  ") + name + " "));
    }
}

TEST_F(LauncherTest, PrintsItsVersion) {
    EXPECT_EQ(softverbs("--version").output, "softverbs " SOFTVERBS_VERSION "\n");
}

TEST_F(LauncherTest, SaysWhenThereIsNoCommand) {
    const CommandResult result = run("--devices 2");
    EXPECT_THAT(result.output, HasSubstr("there is no command to run"));
    EXPECT_EQ(result.exit_status, 2);
}

TEST_F(LauncherTest, ExitsWith127WhenTheCommandDoesNotExist) {
    const CommandResult result = run("-- no-such-command-anywhere");
    EXPECT_EQ(result.output, "softverbs: no-such-command-anywhere: command not found\n");
    EXPECT_EQ(result.exit_status, 127);
    EXPECT_EQ(run("-- /no/such/file").exit_status, 127);
}

TEST_F(LauncherTest, ExitsWith126WhenTheCommandIsNotExecutable) {
    // Even root can execute a file only if it has an execute permission.
    const std::string path = script("plain", "#!/bin/sh\n", 0644);
    const CommandResult result = run("-- " + path);
    EXPECT_EQ(result.output, "softverbs: " + path + ": Permission denied\n");
    EXPECT_EQ(result.exit_status, 126);
    EXPECT_EQ(run("-- /tmp").exit_status, 126);
}

TEST_F(LauncherTest, RunsAScriptWithoutAnInterpreter) {
    EXPECT_EQ(run("-- " + script("script", "echo from a script\n")).output, "from a script\n");
}

TEST_F(LauncherTest, RefusesASetUserIdProgram) {
    if (::getuid() != 0) {
        GTEST_SKIP() << "only root can make a file of another user";
    }
    const std::string path = directory_.path() + "/set-user-id";
    run_command("cp /bin/true " + path);
    ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
    ASSERT_EQ(::chmod(path.c_str(), 04755), 0);
    const CommandResult result = run("-- " + path);
    EXPECT_THAT(result.output, AllOf(HasSubstr("a set-user-id program"), HasSubstr("LD_PRELOAD")));
    EXPECT_EQ(result.exit_status, 126);
}

TEST_F(LauncherTest, KeepsTheLibrariesThatTheEnvironmentHas) {
    const CommandResult result = softverbs("run -- sh -c 'echo $LD_PRELOAD; echo $LD_LIBRARY_PATH'",
                                           "LD_LIBRARY_PATH=/usr/local/lib LD_PRELOAD=libdl.so.2");
    EXPECT_THAT(result.output, AllOf(HasSubstr("libdl.so.2:"), HasSubstr(":/usr/local/lib\n")));
}

TEST_F(LauncherTest, UsesTheLibibverbsThatTheEnvironmentHas) {
    const std::string other = directory_.path() + "/other";
    run_command("mkdir " + other);
    run_command("cp -L $(ldconfig -p | sed -n 's/.*libibverbs.so.1 .*=> //p' | head -1) " + other);
    const CommandResult result =
        softverbs("run -- cat /proc/self/maps", "LD_LIBRARY_PATH=" + other);
    EXPECT_THAT(result.output, HasSubstr(other + "/libibverbs.so.1"));
    EXPECT_EQ(
        softverbs(std::string("run -- ") + LOADED_BY_DLOPEN + " dlopen", "LD_LIBRARY_PATH=" + other)
            .output,
        "device soft0\nok 4096\n");
}

TEST_F(LauncherTest, ExplainsItselfWithin80Columns) {
    for (const char* const arguments : {"--help", "run --help", "devices --help"}) {
        const CommandResult result = softverbs(arguments);
        EXPECT_EQ(result.exit_status, 0);
        std::size_t begin = 0;
        while (begin < result.output.size()) {
            const std::size_t end = result.output.find('\n', begin);
            EXPECT_LE(end - begin, 80U) << result.output.substr(begin, end - begin);
            begin = end + 1;
        }
    }
}

} // namespace

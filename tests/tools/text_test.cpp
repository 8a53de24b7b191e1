// SPDX-License-Identifier: BSD-3-Clause
#include "text.hpp"

#include <string>

#include <gtest/gtest.h>

namespace {

using namespace rdmabuf::tools;

TEST(WrapText, BreaksAtSpacesBeforeTheWidth) {
    EXPECT_EQ(wrap({.width = 10}, "one two three four", "", "  "), "one two\n  three\n  four\n");
    EXPECT_EQ(wrap({.width = 7}, "one two", "", ""), "one two\n");
    EXPECT_EQ(wrap({.width = 6}, "one two", "", ""), "one\ntwo\n");
}

TEST(WrapText, DoesNotBreakALongWord) {
    EXPECT_EQ(wrap({.width = 5}, "a abcdefgh b", "", ""), "a\nabcdefgh\nb\n");
}

TEST(WrapText, JoinsSpacesAndRemovesThoseAtTheEnd) {
    EXPECT_EQ(wrap({}, "  one   two ", "- ", "  "), "- one two\n");
    EXPECT_EQ(wrap({}, "flags\t\t: fpu\n\n", "", ""), "flags : fpu\n");
    EXPECT_EQ(wrap({}, "", "name  ", ""), "name\n");
}

TEST(WrapText, ColoursAreNoColumns) {
    const TextStyle style{.width = 9, .colour = true};
    EXPECT_EQ(wrap(style, paint(style, Colour::good, "four") + " more", "", ""),
              "\x1b[32mfour\x1b[0m more\n");
}

TEST(WrapText, HasNoEscapeSequencesOtherThanColours) {
    EXPECT_EQ(wrap({}, "a\x1b]0;title\x07 \x1b[2J b\x1b", "", ""), "a?]0;title? ?[2J b?\n");
    EXPECT_EQ(wrap({}, "\x1b[1;5m \x1b[", "", ""), "?[1;5m ?[\n");
}

TEST(ShellWord, HasQuotesOnlyWhereAShellNeedsThem) {
    EXPECT_EQ(shell_word("ens3f0np0.100"), "ens3f0np0.100");
    EXPECT_EQ(shell_word("/sys/fs/cgroup/a b"), "'/sys/fs/cgroup/a b'");
    EXPECT_EQ(shell_word("$(reboot)'; reboot"), "'$(reboot)'\\''; reboot'");
    EXPECT_EQ(shell_word(""), "''");
}

TEST(WrapCommand, EndsEachLineButTheLastWithABackslash) {
    EXPECT_EQ(wrap_command({}, "modprobe ib_uverbs", "run: ", "     "),
              "run: modprobe ib_uverbs\n");
    // The first line has 20 columns with the backslash, and the second 20 without.
    EXPECT_EQ(wrap_command({.width = 20}, "setpci -s 0:02 ECAP_ACS+6.w=00", "run: ", "     "),
              "run: setpci -s \\\n     0:02 \\\n     ECAP_ACS+6.w=00\n");
}

TEST(WrapCommand, BreaksNeitherQuotedTextNorComments) {
    EXPECT_EQ(wrap_command({.width = 12}, "sed -i 's/a b c/d e f/' a", "", ""),
              "sed -i \\\n's/a b c/d e f/' \\\na\n");
    EXPECT_EQ(wrap_command({.width = 12}, "echo \"a \\\" b c d\" a\\ b\\ c '\\' d e", "", ""),
              "echo \\\n\"a \\\" b c d\" \\\na\\ b\\ c \\\n'\\' d e\n");
    EXPECT_EQ(wrap_command({.width = 12}, "reboot  # after the update", "", ""),
              "reboot \\\n# after the update\n");
    EXPECT_EQ(wrap_command({.width = 4}, "echo 'not closed", "", ""), "echo \\\n'not closed\n");
    EXPECT_EQ(wrap_command({}, "echo a\\", "", ""), "echo a\\\n");
}

TEST(WrapCommand, HasNoControlCharacters) {
    EXPECT_EQ(wrap_command({}, "ip link set 'a\nreboot' up", "", ""),
              "ip link set 'a?reboot' up\n");
}

TEST(FieldText, HasTheNameInAColumnOfItsOwn) {
    EXPECT_EQ(field({}, "driver", "mlx5_core"), "  driver            mlx5_core\n");
    EXPECT_EQ(field({.width = 60}, "limits", "max_mr_size 131072 GiB, max_qp 65536, max_cq 65536"),
              "  limits            max_mr_size 131072 GiB, max_qp 65536,\n"
              "                    max_cq 65536\n");
}

TEST(FieldText, FollowsTheNameInNarrowLines) {
    EXPECT_EQ(field({.width = 24}, "limits", "max_qp 65536, max_cq 65536"),
              "  limits: max_qp 65536,\n    max_cq 65536\n");
}

TEST(StyleOfStdout, OfAPipeHas80ColumnsAndNoColours) {
    // ctest runs the tests with a pipe as stdout.
    if (::testing::internal::posix::IsATTY(1) != 0) {
        GTEST_SKIP() << "stdout is a terminal";
    }
    EXPECT_EQ(style_of_stdout().width, 80U);
    EXPECT_FALSE(style_of_stdout().colour);
}

} // namespace

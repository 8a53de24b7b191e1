# SPDX-License-Identifier: BSD-3-Clause
"""Runs modules of rdma-core's tests in this process and writes each test's outcome to a file.

usage: run_modules.py OUTCOMES|--list MODULE... [option of rdma-core's run_tests.py]...

PYTHONPATH names the directory of the tests. A line of OUTCOMES is the test's id, `started`, `pass`, `skip` or `fail`,
and a reason, separated by tabs. The line with `started` is written first: it is the last of a test that ends the process.
"""
import importlib
import sys
import unittest


class Outcomes(unittest.TextTestResult):
    file = None

    def write(self, test, outcome, reason=""):
        # A subtest's id begins with that of its test.
        reason = " ".join(str(reason).split())
        print(test.id().split(" ")[0].removeprefix("tests."), outcome, reason, sep="\t", file=self.file, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.failed = False
        self.write(test, "started")

    def addSuccess(self, test):
        super().addSuccess(test)
        if not self.failed:
            self.write(test, "pass")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.write(test, "skip", reason)

    def fail(self, test, error):
        self.failed = True
        self.write(test, "fail", f"{error[0].__name__}: {error[1]}")

    def addError(self, test, err):
        super().addError(test, err)
        self.fail(test, err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.fail(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.fail(test, err)


def tests_in(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_in(test)
        else:
            yield test


def main():
    outcomes = sys.argv[1]
    names = [argument for argument in sys.argv[2:] if argument.startswith("test_")]
    sys.argv[1:] = [argument for argument in sys.argv[2:] if argument not in names]
    # rdma-core's tests take their options from this module.
    from args_parser import parser  # pylint: disable=import-outside-toplevel,import-error
    parser.parse_args()
    loader = unittest.TestLoader()
    suite = unittest.TestSuite(loader.loadTestsFromModule(importlib.import_module(f"tests.{name}")) for name in names)
    if outcomes == "--list":
        for test in tests_in(suite):
            print(test.id().removeprefix("tests."))
        return 0
    with open(outcomes, "w", encoding="utf-8") as Outcomes.file:
        done = unittest.TextTestRunner(verbosity=2, resultclass=Outcomes).run(suite)
    return 0 if done.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: BSD-3-Clause
"""Combinations of the options of perftest's programs.

An axis is a list of settings that exclude each other, such as the connection types. A combination has one setting of
each axis that the program has. The options that a program has come from its own usage text.
"""
import dataclasses
import fnmatch
import itertools
import random
import re


@dataclasses.dataclass(frozen=True)
class Setting:
    """Options of one axis, and the line of the report in which perftest has to confirm them."""
    label: str  # as in the table of exceptions
    options: tuple = ()
    environment: tuple = ()
    report: tuple = ()  # (name in the report, regular expression)


def option(text, *report):
    return Setting(text, tuple(text.split()), report=report)


NONE = Setting("")
# perftest sends inline, and calls ibv_wr_*(), on devices only that it knows by vendor and part number.
MLX5 = ("SOFTVERBS_PROFILE", "mlx5")
ETHERNET = ("SOFTVERBS_LINK_LAYER", "ethernet")
EFA = ("SOFTVERBS_PROFILE", "efa")

# The axes of which all combinations run with --all.
MAIN = {
    "device": [Setting("default", report=(("ibv_wr* API", "OFF"), ("Link type", "IB"))),
               Setting("mlx5", (), (MLX5,), (("ibv_wr* API", "ON"),)),
               Setting("inline", ("-I", "32"), (MLX5,), (("Max inline data", r"(3[2-9]|[4-9]\d|\d{3})\[B\]"),))],
    "setup": [Setting("TCP", report=(("Data ex. method", "Ethernet"),)),
              option("-R", ("rdma_cm QPs", "ON"), ("Data ex. method", "rdma_cm")),
              option("-z", ("rdma_cm QPs", "OFF"), ("Data ex. method", "rdma_cm"))],
    "size": [option("-s 64"), option("-s 2048")],
    "events": [NONE, option("-e")],
    "direction": [NONE, option("-b")],
    "queue pairs": [NONE, option("-q 4")],
    "shared receive queue": [NONE, option("--use-srq", ("Using SRQ", "ON"))],
    "list": [NONE, option("--post_list 4"), option("--recv_post_list 4")],
}
# All sizes, from 2 bytes to 8 MiB, or to the MTU with UD. perftest takes 0.2 s for each.
ALL_SIZES = option("-a")
# The axes that are added for the covering selection.
MORE = {
    "link layer": [NONE, Setting("ethernet", ("-x", "1"), (ETHERNET,), (("Link type", "Ethernet"),))],
    "copying": [NONE, Setting("no pull", (), (("SOFTVERBS_PULL", "none"),))],
    "post": [NONE, option("--use_old_post_send", ("ibv_wr* API", "OFF"))],
    "atomic": [option("-A FETCH_AND_ADD"), option("-A CMP_AND_SWAP")],
    "moderation": [NONE, option("-Q 1"), option("-Q 4")],
    "mtu": [NONE, option("-m 256", ("Mtu", r"256\[B\]")), option("-m 2048", ("Mtu", r"2048\[B\]"))],
    "depth": [NONE, option("-t 1"), option("-t 8")],
    "receive depth": [NONE, option("-r 256")],
    "outstanding": [NONE, option("-o 1"), option("-o 4")],
    "memory": [NONE, option("--odp"), Setting("--mmap", ("--mmap={file}",)), option("--mr_per_qp")],
    "inline receive": [NONE, option("--inline_recv 32")],
    "partition": [NONE, option("--pkey_index=0")],
}
# Settings that run alone, with a connection of the first type of the program.
ALONE = [option("-Q 1 --perform_warm_up"), option("--perform_warm_up"), option("-g"), option("-N"), option("--reversed"),
         option("-O"), option("--report-both"), option("--report_gbits"), option("-H"), option("-U"), option("-C"),
         option("-u 16"), option("-S 1"), option("-T 8"), option("-T 8 -R", ("rdma_cm QPs", "ON"), ("Data ex. method", "rdma_cm")), option("--tclass=8"), option("-L 2"),
         option("--dont_xchg_versions"), option("--ipv6"), option("--latency_gap=1"),
         Setting("rate by software", ("--rate_limit=5", "--rate_limit_type=SW")),
         Setting("rate by hardware", ("--rate_limit=5", "--rate_limit_type=HW")), option("-D 1")]

# The connection types of the profile efa, for the programs that have SRD. They run alone, each with one size.
ON_EFA = [Setting("SRD on efa", ("-c", "SRD", "-x", "0"), (EFA,), (("Connection type", "SRD"),)),
          Setting("UD on efa", ("-c", "UD", "-x", "0", "-Q", "1"), (EFA,), (("Connection type", "UD"),))]


def has_option(usage, text):
    """Whether the usage text of a program has the option `text`, without its value."""
    name = re.split(r"[ =]", text)[0]
    return re.search(rf"(^|[\s,/]){re.escape(name)}([\s,=]|$)", usage, re.MULTILINE) is not None


def has_options(usage, setting):
    return all(has_option(usage, word) for word in setting.options if word.startswith("-"))


def axes_of(usage, axes):
    """Returns the axes of a program, by its usage text: those of which it has at least one option."""
    result = {}
    for name, settings in axes.items():
        kept = [setting for setting in settings if has_options(usage, setting)]
        if len(kept) > 1:
            result[name] = kept
    return result


def connections(usage):
    """Returns the axis of the connection types that the usage text of a program names."""
    types = re.search(r"--connection=<([^>]*)>", usage)[1].split("/")
    return [option(f"-c {name}", ("Connection type", name)) for name in types]


def labels(combination):
    return {setting.label for setting in combination.values()} - {""}


class Exceptions:
    """The table of what does not run, for one program."""

    def __init__(self, rows, program):
        self.rows = [row for row in rows if fnmatch.fnmatchcase(program, row.programs)]

    def match(self, combination):
        present = labels(combination)
        return next((row for row in self.rows if row.options <= present), None)

    def permits(self, combination):
        return self.match(combination) is None


def product(axes):
    for settings in itertools.product(*axes.values()):
        yield dict(zip(axes, settings))


def covering(axes, exceptions, seed=1):
    """Returns combinations in which each pair of settings of two axes occurs, if the table permits it."""
    generator = random.Random(seed)
    names = list(axes)

    def pairs(combination):
        items = [(name, combination[name].label) for name in names]
        return set(itertools.combinations(items, 2))

    missing = [{first: a, second: b} for first, second in itertools.combinations(names, 2)
               for a in axes[first] for b in axes[second] if exceptions.permits({first: a, second: b})]
    covered, chosen = set(), []
    for pair in missing:
        (first, a), (second, b) = pair.items()
        if ((first, a.label), (second, b.label)) in covered:
            continue
        best, gain = None, 0
        for _ in range(30):
            combination = dict(pair)
            for name in generator.sample(names, len(names)):
                if name not in combination:
                    possible = [setting for setting in axes[name]
                                if exceptions.permits(combination | {name: setting})]
                    if not possible:
                        break
                    combination[name] = generator.choice(possible)
            if len(combination) == len(names):
                new = len(pairs(combination) - covered)
                if new > gain:
                    best, gain = combination, new
        if best:
            covered |= pairs(best)
            chosen.append({name: best[name] for name in names})
    return chosen

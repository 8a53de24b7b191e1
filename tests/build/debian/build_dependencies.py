#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""build_dependencies.py SOURCE BUILD: checks that each list of Debian packages to build rdmabuf with is complete.

The lists are Build-Depends in packaging/debian/control, the first stage of packaging/container/Containerfile, and
scripts/packages. Each list has to name the packages of
- the headers from which the library, the exporters, the command and softverbs were compiled in BUILD (a build by Ninja),
- the programs and libraries that CMake found for them.
The packages of the compiler and of the C library are exceptions: g++ depends on them.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

source, build = Path(sys.argv[1]), Path(sys.argv[2])
PARTS = ("src", "providers", "softverbs", "tools")  # what the packages contain
COMPILER = re.compile(r"(libc6|linux-libc|libgcc-\d+|libstdc\+\+-\d+)-dev$")


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def headers():
    """Returns the files in /usr that the objects of the packages were compiled from."""
    found, of_package = set(), False
    for line in subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True, capture_output=True,
                               text=True).stdout.splitlines():
        if not line.startswith(" "):
            of_package = line.startswith(tuple(f"{part}/" for part in PARTS))
        elif of_package and line.strip().startswith("/usr/"):
            found.add(line.strip())
    return found


def found_by_cmake():
    """Returns the results of find_program() and find_library() in the CMake files of the packages."""
    cache = (build / "CMakeCache.txt").read_text()
    files = [path for part in ("cmake", *PARTS) for path in (source / part).rglob("*") if path.suffix == ".cmake" or
             path.name == "CMakeLists.txt"]
    prefixes = {name for path in files for name in re.findall(r"find_(?:program|library)\(\s*(\w+)", path.read_text())}
    return {value for prefix in prefixes
            for value in re.findall(rf"^{prefix}\w*:FILEPATH=(/usr/.+)$", cache, re.MULTILINE)}


def packages(files):
    """Returns the names of the packages that have installed these files."""
    process = subprocess.run(["dpkg", "--search", *sorted(files)], capture_output=True, text=True,
                             env={**os.environ, "LC_ALL": "C"})
    names = {name.partition(":")[0] for line in process.stdout.splitlines()
             for name in line.rpartition(": ")[0].split(", ")}
    return {name for name in names if not COMPILER.search(name)}


if not shutil.which("dpkg"):
    skip("the program dpkg is missing")
if "CMAKE_GENERATOR:INTERNAL=Ninja" not in (build / "CMakeCache.txt").read_text():
    skip(f"{build} was not configured for Ninja, which lists the headers of each object")
needed = packages(headers()) | packages(found_by_cmake())
# The result has packages of both origins, and of each part.
assert {"libibverbs-dev", "libnl-3-dev", "libcli11-dev", "go-md2man", "help2man"} <= needed, needed

control = (source / "packaging/debian/control").read_text()
container = (source / "packaging/container/Containerfile").read_text()
lists = {
    "packaging/debian/control, Build-Depends": re.search(r"^Build-Depends:((?:\n .*)+)", control, re.MULTILINE)[1],
    "packaging/container/Containerfile, first stage": re.search(r"apt-get install ([^&]+)&&", container)[1],
    "scripts/packages": re.sub(r"#.*", "", "".join((source / "scripts" / name).read_text() for name in ("packages", "packages-all"))),
}
incomplete = False
for name, text in lists.items():
    missing = needed - set(re.findall(r"[a-z0-9][a-z0-9+.-]+", text))
    if missing:
        incomplete = True
        print(f"{name} does not name: {' '.join(sorted(missing))}")
print(f"{len(needed)} packages: {' '.join(sorted(needed))}")
sys.exit(incomplete)

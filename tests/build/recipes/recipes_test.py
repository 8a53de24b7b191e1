#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""recipes_test.py CMAKE BUILD VERSION: checks the recipes in packaging/ for other package managers without these.

The recipes run with replacements of the functions that Spack and vcpkg define. All options that a recipe passes to
CMake must exist in the cache of BUILD, and the version must be VERSION.
"""
import json
import pathlib
import re
import runpy
import subprocess
import sys
import types
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[3]
PACKAGING = SOURCE / "packaging"
CMAKE, BUILD, VERSION = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)


def cache():
    """Returns the name and the type of each variable in the cache of the build."""
    text = (BUILD / "CMakeCache.txt").read_text()
    return dict(re.findall(r"^([A-Za-z_]+):([A-Z]+)=", text, re.MULTILINE))


class Recorder:
    """A class CMakePackage, and functions that record their arguments, as spack.package defines them."""

    def __init__(self):
        self.calls = []
        module = types.ModuleType("spack.package")
        for name in ("license", "version", "variant", "depends_on", "conflicts"):
            setattr(module, name, self.recorder(name))
        module.CMakePackage = type("CMakePackage", (), {
            "define": lambda package, name, value: f"-D{name}={value}",
            "define_from_variant": lambda package, name, variant: f"-D{name}=variant:{variant}",
        })
        sys.modules["spack"] = types.ModuleType("spack")
        sys.modules["spack.package"] = module

    def recorder(self, name):
        return lambda *arguments, **options: self.calls.append((name, arguments, options))

    def arguments(self, name):
        return [arguments[0] for called, arguments, _ in self.calls if called == name]


class Spack(unittest.TestCase):
    def setUp(self):
        self.recorder = Recorder()
        recipe = PACKAGING / "spack/packages/rdmabuf/package.py"
        self.options = runpy.run_path(str(recipe))["Rdmabuf"]().cmake_args()

    def test_options_are_in_the_cmake_cache(self):
        self.assertGreaterEqual(len(self.options), 6)
        for option in self.options:
            self.assertEqual(cache().get(option[2:].split("=")[0]), "BOOL", option)

    def test_options_refer_to_declared_variants(self):
        used = [option.split("variant:")[1] for option in self.options if "variant:" in option]
        self.assertEqual(sorted(used), sorted(self.recorder.arguments("variant")))

    def test_version_is_that_of_the_project(self):
        self.assertEqual(self.recorder.arguments("version"), [VERSION])


class Vcpkg(unittest.TestCase):
    PORT = PACKAGING / "vcpkg/rdmabuf"

    def configure(self, *features):
        """Runs the port, and returns the source directory and the options for CMake."""
        process = subprocess.run(
            [CMAKE, "-D", f"PORTFILE={self.PORT / 'portfile.cmake'}", "-D", f"FEATURES={';'.join(features)}",
             "-P", pathlib.Path(__file__).with_name("vcpkg_functions.cmake")],
            capture_output=True, text=True, check=True)
        source, *options = process.stderr.split()
        return pathlib.Path(source), options

    def test_port_configures_the_repository_that_contains_it(self):
        source, _ = self.configure()
        self.assertEqual(source, SOURCE)

    def test_options_are_in_the_cmake_cache(self):
        _, options = self.configure("tools", "softverbs")
        self.assertGreaterEqual(len(options), 5)
        for option in options:
            self.assertEqual(cache().get(option[2:].split("=")[0]), "BOOL", option)

    def test_features_enable_the_parts_of_the_project(self):
        _, options = self.configure("softverbs")
        self.assertIn("-DRDMABUF_BUILD_SOFTVERBS=ON", options)
        self.assertIn("-DRDMABUF_BUILD_TOOLS=OFF", options)

    def test_version_is_that_of_the_project(self):
        manifest = json.loads((self.PORT / "vcpkg.json").read_text())
        self.assertEqual(manifest["version-semver"], VERSION)
        self.assertEqual(sorted(manifest["features"]), ["softverbs", "tools"])


unittest.main(verbosity=2)

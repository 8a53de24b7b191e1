#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""recipes_test.py CMAKE BUILD VERSION: checks the recipes in packaging/ for other package managers without these.

Neither Spack nor vcpkg runs here. The recipes run with replacements of the classes and functions that they import from
Spack's package API v2, and of all functions of vcpkg, which do nothing except recording their arguments. So the tests
do not show that a dependency exists, that its version is right, or that the recipe builds anything. They show that the
recipe is valid Python or CMake, that all options that it passes to CMake exist in the cache of BUILD, that the version
is VERSION, and that the recipe has a dependency for each package that the CMake files require.
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


OPTION_TYPES = ("BOOL", "STRING", "FILEPATH")  # the types of options in the cache of CMake


def cache():
    """Returns the name and the type of each variable in the cache of the build."""
    text = (BUILD / "CMakeCache.txt").read_text()
    return dict(re.findall(r"^([A-Za-z_]+):([A-Z]+)=", text, re.MULTILINE))


def required_packages(folder):
    """Returns the names of find_package() and the modules of pkg_check_modules() that a folder's CMakeLists.txt requires."""
    text = (SOURCE / folder).read_text()
    return set(re.findall(r"^find_package\((\w+)[^)]*\bREQUIRED", text, re.MULTILINE)) | set(
        re.findall(r"^pkg_check_modules\(\w+ REQUIRED IMPORTED_TARGET ([\w.-]+)\)", text, re.MULTILINE))


# The names of Spack and vcpkg for what the CMake files require. Threads are part of the C library.
SPACK = {"CLI11": "cli11", "fmt": "fmt", "nlohmann_json": "nlohmann-json", "libnl-3.0": "libnl", "ZLIB": "zlib-api",
         "libibverbs": "rdma-core", "librdmacm": "rdma-core", "PkgConfig": "pkgconfig", "Threads": None}
VCPKG = {**SPACK, "ZLIB": "zlib", "PkgConfig": None}  # the port finds pkg-config by vcpkg_find_acquire_program()


class Recorder:
    """The modules of Spack's package API v2: a class CMakePackage, and functions that record their arguments."""

    def __init__(self):
        self.calls = []
        modules = {}
        for name in ("spack", "spack.package", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems",
                     "spack_repo.builtin.build_systems.cmake"):
            modules[name] = types.ModuleType(name)
        for name in ("license", "version", "variant", "depends_on", "conflicts"):
            setattr(modules["spack.package"], name, self.recorder(name))
        modules["spack_repo.builtin.build_systems.cmake"].CMakePackage = type("CMakePackage", (), {
            "define": lambda package, name, value: f"-D{name}={value}",
            "define_from_variant": lambda package, name, variant: f"-D{name}=variant:{variant}",
        })
        sys.modules.update(modules)

    def recorder(self, name):
        return lambda *arguments, **options: self.calls.append((name, arguments, options))

    def arguments(self, name, when=None):
        """Returns the first arguments of all calls of a function, or only of those with this argument `when`."""
        return [arguments[0] for called, arguments, options in self.calls
                if called == name and when in (None, options.get("when", ""))]


class Spack(unittest.TestCase):
    REPOSITORY = PACKAGING / "spack/spack_repo/rdmabuf"

    def setUp(self):
        self.recorder = Recorder()
        self.options = runpy.run_path(str(self.REPOSITORY / "packages/rdmabuf/package.py"))["Rdmabuf"]().cmake_args()

    def test_repository_has_the_layout_of_package_api_v2(self):
        text = (self.REPOSITORY / "repo.yaml").read_text()
        self.assertIn("\n  api: v2.0\n", text)
        # The path below spack_repo is the name of the Python module, and has to be the namespace.
        self.assertIn(f"\n  namespace: {self.REPOSITORY.name}\n", text)
        self.assertEqual(self.REPOSITORY.parent.name, "spack_repo")

    def test_dependencies_are_those_of_the_cmake_files(self):
        def names(when):
            return {spec.partition("@")[0] for spec in self.recorder.arguments("depends_on", when)}

        for folder, when in (("cmake/RdmabufDependencies.cmake", ""), ("tools/CMakeLists.txt", "+tools"),
                             ("softverbs/tools/CMakeLists.txt", "+softverbs")):
            needed = {SPACK[name] for name in required_packages(folder)} - {None}
            self.assertTrue(needed)
            self.assertLessEqual(needed, names(when), folder)

    def test_options_are_in_the_cmake_cache(self):
        self.assertGreaterEqual(len(self.options), 6)
        for option in self.options:
            self.assertIn(cache().get(option[2:].split("=")[0]), OPTION_TYPES, option)

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
            self.assertIn(cache().get(option[2:].split("=")[0]), OPTION_TYPES, option)

    def test_features_enable_the_parts_of_the_project(self):
        _, options = self.configure("softverbs")
        self.assertIn("-DRDMABUF_BUILD_SOFTVERBS=ON", options)
        self.assertIn("-DRDMABUF_BUILD_TOOLS=OFF", options)

    def test_version_is_that_of_the_project(self):
        manifest = json.loads((self.PORT / "vcpkg.json").read_text())
        self.assertEqual(manifest["version-semver"], VERSION)
        self.assertEqual(sorted(manifest["features"]), ["softverbs", "tools"])

    def test_dependencies_are_those_of_the_cmake_files(self):
        manifest = json.loads((self.PORT / "vcpkg.json").read_text())
        for folder, dependencies in (("cmake/RdmabufDependencies.cmake", manifest["dependencies"]),
                                     ("tools/CMakeLists.txt", manifest["features"]["tools"]["dependencies"]),
                                     ("softverbs/tools/CMakeLists.txt", manifest["features"]["softverbs"]["dependencies"])):
            needed = {VCPKG[name] for name in required_packages(folder)} - {None}
            self.assertTrue(needed)
            self.assertLessEqual(needed, {name for name in dependencies if isinstance(name, str)}, folder)


unittest.main(verbosity=2)

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the code blocks of the documentation. CONTRIBUTING.md, "A page of the documentation", has the rules.

usage: blocks.py sources SOURCE_DIR WORK_DIR            writes the cpp and c blocks, and blocks.cmake that lists them
       blocks.py commands SOURCE_DIR WORK_DIR BUILD_DIR checks or runs the sh blocks, and parses those in yaml and python
       blocks.py cmake SOURCE_DIR WORK_DIR PREFIX       configures the cmake blocks with the packages in PREFIX, and
                                                        builds and tests the projects of pages with files
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

mode, root, work, *rest = sys.argv[1], *(Path(argument).resolve() for argument in sys.argv[2:])
sys.path.insert(0, str(root / "docs" / "site"))
sys.dont_write_bytecode = True
from markdown import parse  # noqa: E402

FRAGMENT_HEAD = {
    "cpp": "#include <rdmabuf/rdmabuf.hpp>\n#include <rdmabuf/transport.hpp>\n",
    "c": "#include <errno.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <infiniband/verbs.h>\n",
}
LANGUAGES = (*FRAGMENT_HEAD, "python", "sh", "cmake", "yaml", "text")
NAMES = {path for pattern in ("*.md", "docs/**/*.md", "*/README.md", "*/*/README.md") for path in root.glob(pattern)}
PAGES = [parse(path) for path in sorted(NAMES) if path.relative_to(root).parts[0] != "build"]
BLOCKS = [block for page in PAGES for block in page.blocks]


def name_of(block):
    return re.sub(r"\W", "_", f"{block.page.relative_to(root).with_suffix('')}_{block.line}")


def write(path, text):
    """Writes the file if its text has changed, so that it is not compiled again otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def write_sources():
    """A complete block is a file of its own. All fragments of a language are functions in one file."""
    cmake = ""
    includes = dict(FRAGMENT_HEAD)
    functions = dict.fromkeys(FRAGMENT_HEAD, "")
    for block in BLOCKS:
        if block.language not in functions:
            continue
        declared = block.declarations().splitlines(keepends=True)
        includes[block.language] += "".join(text for text in declared if text.startswith("#include"))
        declarations = "".join(text for text in declared if not text.startswith("#include"))
        name = name_of(block)
        line = f'#line {block.line} "{block.page}"\n'
        if "#include" in block.text:
            write(work / f"{name}.{block.language}", block.declarations() + "\n" + line + block.text)
            kind = "PROGRAM" if re.search(r"^int main\(", block.text, re.M) else "UNIT"
            cmake += f"add_block({name} {name}.{block.language} {kind} {'RUN' if block.run() else ''})\n"
        elif block.language == "cpp":
            functions["cpp"] += f"namespace {name} {{\n{declarations}\nauto block() {{\n{line}{block.text}}}\n}}\n"
        else:
            functions["c"] += f"static void {name}(void) {{\n{declarations}\n{{\n{line}{block.text}}}\n}}\n"
    for language, text in functions.items():
        write(work / f"fragments.{language}", includes[language] + text)
    write(work / "blocks.cmake", cmake)
    return []


def check_command(words, build, helps):
    """Checks the subcommand and the options of a command of rdmabuf, softverbs or a script of the repository."""
    while words and (re.match(r"\w+=", words[0]) or words[0] in ("sudo", "exec", "time", "env")):
        words = words[1:]
    if not words:
        return []
    end = words.index("--") if "--" in words else len(words)
    errors = check_command(words[end + 1 :], build, helps)
    program, arguments = Path(words[0]).name, words[1:end]
    if program in ("rdmabuf", "softverbs"):
        command = [str(build / ("tools" if program == "rdmabuf" else "softverbs") / program)]
        command += [argument for argument in arguments[:1] if not argument.startswith("-")]
        if tuple(command) not in helps:
            result = subprocess.run([*command, "--help"], capture_output=True, text=True)
            helps[tuple(command)] = result.stdout if result.returncode == 0 else None
        text = helps[tuple(command)]
        if text is None:
            return [*errors, f"{program} {' '.join(command[1:])} does not exist"]
    elif (root / words[0]).is_file():
        text = (root / words[0]).read_text(errors="replace")
    else:
        return errors
    for option in (word.partition("=")[0] for word in arguments if re.match(r"--\w", word)):
        if not re.search(re.escape(option) + r"(?![\w-])", text):
            errors.append(f"{program} has no option {option}")
    return errors


def check_sh(block, build, helps):
    syntax = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
    errors = [syntax.stderr.strip()] if syntax.returncode != 0 else []
    code = block.text.replace("\\\n", " ")
    folders = "|".join(re.escape(path.name) for path in root.iterdir() if path.is_dir() and path.name != "build")
    for path in re.findall(rf"(?<![\w./~-])(?:{folders})/[\w./-]*\w(?![\w*])", code):
        if not (root / path).exists():
            errors.append(f"{path} does not exist in the repository")
    for path in re.findall(r"(?<![\w./~-])build/release/([\w./-]*\w)(?!/?[\w*])", code):
        if not (build / path).exists():
            errors.append(f"build/release/{path} does not exist after a build")
    for line in code.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        command = []
        try:
            for word in [*lexer, ";"]:
                if re.fullmatch(r"[;&|()]+", word):
                    errors += check_command(command, build, helps)
                    command = []
                else:
                    command.append(word)
        except ValueError:
            pass  # A quoted text of several lines has no commands.
    return errors


def run_sh(block, build):
    """Runs the block in the root of the repository, with the commands of this build in PATH."""
    (work / "softverbs").mkdir(mode=0o700, parents=True, exist_ok=True)
    environment = {**os.environ, "SOFTVERBS_DIR": str(work / "softverbs"),
                   "PATH": f"{build}/tools:{build}/softverbs:{os.environ['PATH']}"}
    result = subprocess.run(["timeout", "200", "bash", "-euo", "pipefail"], cwd=root, env=environment,
                            input=block.text.replace("build/release", str(build)), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return [f"it ended with status {result.returncode}:\n{result.stdout}"] if result.returncode != 0 else []


def check_commands(build):
    import yaml

    errors = [f"{page.path}:{line}: code without a language; write ```{'|'.join(LANGUAGES)}"
              for page in PAGES for line in page.indented_code]
    helps = {}
    for block in BLOCKS:
        found = []
        if block.language not in LANGUAGES:
            found = [f"'{block.language}' is not one of the languages {', '.join(LANGUAGES)}"]
        elif block.language == "sh":
            found = check_sh(block, build, helps) + (run_sh(block, build) if block.run() else [])
        elif block.language == "python":
            try:
                compile(block.text, str(block.page), "exec")
            except SyntaxError as error:
                found = [str(error)]
        elif block.language == "yaml":
            try:
                list(yaml.safe_load_all(block.text))
            except yaml.YAMLError as error:
                found = [str(error)]
        errors += [f"{block}: {error}" for error in found]
    return errors


def configure(project, prefix):
    return subprocess.run(["cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
                           f"-DFETCHCONTENT_SOURCE_DIR_RDMABUF={root}", f"-DRDMABUF={root}"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def configure_cmake(prefix):
    """Configures each block as a project. Sources that it names are empty files."""
    errors = []
    for block in (block for block in BLOCKS if block.language == "cmake" and not block.file()):
        project = work / name_of(block)
        shutil.rmtree(project, ignore_errors=True)
        text = block.declarations() + "\n" + block.text
        if "cmake_minimum_required" not in text:
            text = "cmake_minimum_required(VERSION 3.25)\nproject(block LANGUAGES CXX)\nenable_testing()\n" + text
        write(project / "CMakeLists.txt", text)
        for source in re.findall(r"(?<![\w/])\w+\.(?:cpp|c)\b", text):
            write(project / source, "")
        result = configure(project, prefix)
        if result.returncode != 0:
            errors.append(f"{block}: cmake ended with status {result.returncode}:\n{result.stdout}")
    return errors + build_projects(prefix)


def build_projects(prefix):
    """Writes the blocks of a page that are files to a directory, builds it with CMake, and runs its tests."""
    errors = []
    for page in PAGES:
        files = [block for block in page.blocks if block.file()]
        if not files:
            continue
        project = work / re.sub(r"\W", "_", str(page.path.relative_to(root).with_suffix("")))
        shutil.rmtree(project, ignore_errors=True)
        for block in files:
            write(project / block.file(), block.text)
        result = configure(project, prefix)
        for command in (["cmake", "--build", project / "build"],
                        ["ctest", "--test-dir", project / "build", "--output-on-failure", "--no-tests=error"]):
            if result.returncode == 0:
                result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if result.returncode != 0:
            errors.append(f"{page.path}: {result.args[0]} ended with status {result.returncode}:\n{result.stdout}")
    return errors


failed = {"sources": write_sources, "commands": check_commands, "cmake": configure_cmake}[mode](*rest)
if failed:
    sys.exit("\n".join(failed))

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""licences.py SOURCE: checks that each file names its licence in its first lines.

`reuse lint` does not check this: .reuse/dep5 has the copyright of all files, and with it a licence. Its last paragraph
of files lists those that cannot have a comment in the first lines. Only these may have no SPDX line there.
"""
import fnmatch
import re
import subprocess
import sys
from pathlib import Path

source = Path(sys.argv[1])
lists = re.findall(r"^Files:((?:.*\n)(?: .*\n)*)", (source / ".reuse/dep5").read_text(), re.MULTILINE)
patterns = set(lists[-1].split())
assert "*" not in patterns, "the last list of files in .reuse/dep5 matches all files"

names = subprocess.run(
    ["git", "-C", source, "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"],
    check=True, capture_output=True, text=True).stdout.splitlines()
errors, used, count = [], set(), 0
for name in names:
    if not (source / name).is_file():
        continue  # deleted, and not committed yet
    count += 1
    first_lines = b"\n".join((source / name).read_bytes()[:4096].splitlines()[:3])
    if b"SPDX-License-" b"Identifier: " in first_lines:
        continue
    matching = {pattern for pattern in patterns if fnmatch.fnmatchcase(name, pattern)}
    used |= matching
    if not matching:
        errors.append(f"{name} has no SPDX-License-" "Identifier in its first lines")
errors += [f".reuse/dep5 lists {pattern}, but no such file is without SPDX line" for pattern in patterns - used]
print("\n".join([*errors, f"{count} files, {len(errors)} errors"]))
sys.exit(1 if errors or count == 0 else 0)

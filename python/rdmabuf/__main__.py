# SPDX-License-Identifier: BSD-3-Clause
"""python -m rdmabuf ARGUMENT...: runs the command rdmabuf, for example `python -m rdmabuf doctor`."""

import os
import shutil
import sys


def main() -> None:
    command = shutil.which("rdmabuf")
    if command is None:
        sys.exit("python -m rdmabuf runs the command rdmabuf, which is not in PATH: install the Debian package "
                 "rdmabuf-tools, or build it from the sources of rdmabuf (target rdmabuf_command)")
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()

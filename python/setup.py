# SPDX-License-Identifier: BSD-3-Clause
"""The wheel has a library of this platform and no extension module, so one wheel is for all versions of Python. The
script `wheel` sets the two variables."""

import os

from setuptools import setup
from wheel.bdist_wheel import bdist_wheel


class PlatformWheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", os.environ["RDMABUF_WHEEL_PLATFORM"]


setup(version=os.environ["RDMABUF_WHEEL_VERSION"], cmdclass={"bdist_wheel": PlatformWheel})

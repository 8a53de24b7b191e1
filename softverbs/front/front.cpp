// SPDX-License-Identifier: BSD-3-Clause

// This file contains no code on purpose. CMakeLists.txt explains how the library is used.

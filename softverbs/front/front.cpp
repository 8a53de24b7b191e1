// SPDX-License-Identifier: BSD-3-Clause

// This file contains no code. CMakeLists.txt explains the purpose of a library without code.

// SPDX-License-Identifier: BSD-3-Clause

// No code: CMakeLists.txt says what a library without any is for.

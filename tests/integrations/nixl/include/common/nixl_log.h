// SPDX-License-Identifier: BSD-3-Clause
// The log of NIXL, which the tests read from the standard error; see backend_engine.h.
#pragma once

#include <iostream>

#define NIXL_ERROR (std::cerr << "\nNIXL_ERROR: ")

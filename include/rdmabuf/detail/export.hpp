// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <rdmabuf/detail/config.hpp>

/// RDMABUF_EXPORT marks the classes, functions and variables that a shared librdmabuf exports. All
/// other symbols of the library are hidden. With a static librdmabuf the macro is empty, so that a
/// plugin linked with the library does not export the symbols of the library.
///
/// A class needs the macro if a member function or the vtable of the class is defined in src/ or
/// providers/. A function or variable needs the macro if it is defined there and used outside the
/// library. Templates and inline functions do not need the macro.
#if RDMABUF_SHARED_LIBRARY
#define RDMABUF_EXPORT [[gnu::visibility("default")]]
#else
#define RDMABUF_EXPORT
#endif

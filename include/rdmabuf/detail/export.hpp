// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <rdmabuf/detail/config.hpp>

/// RDMABUF_EXPORT marks the classes and functions that a shared librdmabuf exports; all other
/// symbols of the library are hidden. A plugin that is linked with a static librdmabuf exports none
/// of them: there the macro is empty.
///
/// A class needs it if it has a member function or a vtable that is defined in src/ or providers/;
/// a function needs it if it is defined there. Templates and inline functions do not need it.
#if RDMABUF_SHARED_LIBRARY
#define RDMABUF_EXPORT [[gnu::visibility("default")]]
#else
#define RDMABUF_EXPORT
#endif

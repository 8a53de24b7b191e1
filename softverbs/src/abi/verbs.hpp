// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "abi/entry.hpp"
#include "objects/completion_queue.hpp"
#include "objects/memory.hpp"
#include "objects/parent_domain.hpp"
#include "objects/queue_pair.hpp"
#include "objects/xrc_domain.hpp"

// Most verbs have an object as their first argument, and are implemented by a function of objects/
// that has the same arguments, with references in place of pointers. The templates of this file
// make such verbs of these functions.

namespace softverbs {

/// The name of a verb, as a template argument.
template <std::size_t size>
struct VerbName {
    char text[size]{};
    consteval VerbName(const char (&name)[size]) { // NOLINT(google-explicit-constructor)
        std::copy_n(name, size, text);
    }
};

// The object of softverbs that a program refers to by a pointer of libibverbs.
inline Context& object_of(ibv_context* native) {
    return context_of(native);
}
inline Channel& object_of(ibv_comp_channel* native) {
    return *static_cast<Channel*>(native);
}
inline Pd& object_of(ibv_pd* native) {
    return *static_cast<Pd*>(native);
}
inline Td& object_of(ibv_td* native) {
    return *static_cast<Td*>(native);
}
inline Xrcd& object_of(ibv_xrcd* native) {
    return *static_cast<Xrcd*>(native);
}
inline Cq& object_of(ibv_cq* native) {
    return Cq::of(native);
}
inline Qp& object_of(ibv_qp* native) {
    return Qp::of(native);
}
inline Srq& object_of(ibv_srq* native) {
    return *static_cast<Srq*>(native);
}
inline Ah& object_of(ibv_ah* native) {
    return *static_cast<Ah*>(native);
}
inline Mr& object_of(ibv_mr* native) {
    return *static_cast<Mr*>(native);
}
inline Mw& object_of(ibv_mw* native) {
    return *static_cast<Mw*>(native);
}
inline Dm& object_of(ibv_dm* native) {
    return *static_cast<Dm*>(native);
}

inline ibv_context* native_context_of(ibv_context* native) {
    return native;
}
inline ibv_context* native_context_of(const auto* native) {
    return native->context;
}

template <class Structure>
Structure& referenced(Structure* argument) {
    return *argument;
}
template <class Value>
requires(!std::is_pointer_v<Value>) Value referenced(Value argument) {
    return argument;
}

/// Copies a structure to memory of the program, and fills the rest of that memory with zeros.
/// @param size  size of the structure in the program, which may have been built with another
///     verbs.h
template <class Structure>
void copy_out(void* out, const Structure& from, std::size_t size) {
    std::memset(out, 0, size);
    std::memcpy(out, &from, std::min(size, sizeof from));
}

/// Allocates the memory of the queues that @p attributes describe, and calls @p create with this
/// memory to implement @p verb, which creates an object.
template <class Attributes, class Create>
auto call_with_memory(std::string_view verb, Context& context, const Attributes& attributes,
                      const Create& create) {
    QueueMemory memory;
    using Result = decltype(create(memory));
    if (const int error = obtain_memory(context, attributes, memory); error != 0) {
        return failure<Result>(error);
    }
    return call(verb, context, [&] { return create(memory); });
}

/// Implements the verb @p name by @p own.
template <VerbName name, auto own, class Result, class Native, class... Arguments>
Result call_own(Native* native, Arguments... arguments) {
    return call(name.text, context_of(native_context_of(native)), [&]() -> Result {
        return native_of<Result>(own(object_of(native), referenced(arguments)...));
    });
}
/// Implements the verb @p name, which destroys an object, by @p own.
template <VerbName name, auto own, class Native>
int destroy_own(Native* native) {
    return destroy(name.text, [native] { return own(object_of(native)); });
}

/// Implements the exported verb @p Self: for an object of softverbs by @p own, and otherwise by the
/// real libibverbs.
template <auto Self, VerbName name, auto own, class Native, class... Arguments>
auto verb(Native* native, Arguments... arguments) {
    using Result = std::invoke_result_t<decltype(Self), Native*, Arguments...>;
    return ours(native_context_of(native)) != nullptr
               ? call_own<name, own, Result>(native, arguments...)
               : forward<Self>(name.text, native, arguments...);
}
/// Like verb(), for a verb that destroys an object.
template <auto Self, VerbName name, auto own, class Native>
int destroying_verb(Native* native) {
    return ours(native_context_of(native)) != nullptr ? destroy_own<name, own>(native)
                                                      : forward<Self>(name.text, native);
}
/// Like destroying_verb(), for a function @p own that takes Process::lock itself.
template <auto Self, VerbName name, auto own, class Native>
int unlocked_destroying_verb(Native* native) {
    return ours(native_context_of(native)) != nullptr
               ? destroy_unlocked(name.text, [native] { return own(object_of(native)); })
               : forward<Self>(name.text, native);
}

/// Implements a verb that frees an imported object and returns nothing.
template <auto Self, VerbName name, auto own, class Native>
void unimporting_verb(Native* native) {
    if (ours(native->context) != nullptr) {
        const Guard guard;
        own(object_of(native));
    } else {
        forward<Self>(name.text, native);
    }
}

} // namespace softverbs

// SPDX-License-Identifier: BSD-3-Clause
// For comparing our declarations of a vendor's interface with the vendor's.
#pragma once

#include <string_view>
#include <type_traits>

namespace same_abi {

/// Whether two types are passed to a function in the same way.
template <class Ours, class Theirs>
inline constexpr bool same_argument =
    sizeof(Ours) == sizeof(Theirs) &&
    std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>&& std::is_floating_point_v<Ours> ==
        std::is_floating_point_v<Theirs>;
template <>
inline constexpr bool same_argument<void, void> = true;

template <class Ours, class Theirs>
struct SameFunction : std::false_type {};
template <class OurResult, class... Ours, class TheirResult, class... Theirs>
requires(sizeof...(Ours) ==
         sizeof...(Theirs)) struct SameFunction<OurResult(Ours...), TheirResult(Theirs...)>
    : std::bool_constant<same_argument<OurResult, TheirResult> &&
                         (same_argument<Ours, Theirs> && ...)> {
};

template <class Ours, class Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
    return static_cast<long long>(ours) == static_cast<long long>(theirs);
}

} // namespace same_abi

// A header may rename functions to those that its library exports: expanded, and then quoted.
#define QUOTE(text) #text
#define EXPORTED(function) std::string_view(QUOTE(function))
/// @param ours  our type of the function
/// @param theirs  the function, by its name in the vendor's header
/// @param exported  the name that the library is asked for
#define SAME_FUNCTION(ours, theirs, exported)                             \
    static_assert(same_abi::SameFunction<ours, decltype(theirs)>::value); \
    static_assert(EXPORTED(theirs) == (exported))

/// Compares an entry of the list of functions of a fake driver with the vendor's header, which must
/// not rename the function.
#define SAME_DECLARATION(scope, type, name)                                      \
    static_assert(same_abi::SameFunction<scope::type, decltype(::name)>::value); \
    static_assert(EXPORTED(name) == #name);

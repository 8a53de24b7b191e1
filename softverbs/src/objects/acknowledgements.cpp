// SPDX-License-Identifier: BSD-3-Clause
#include "objects/acknowledgements.hpp"

#include <algorithm>

namespace softverbs {

namespace {

const void* element_of(const ibv_async_event& event) noexcept {
    const void* element = nullptr;
    with_object(event, [&element](const auto* object) { element = object; });
    return element;
}

} // namespace

void forget_events(Context& context, const void* native) {
    const auto gone = std::erase_if(context.async_events, [native](const ibv_async_event& event) {
        return element_of(event) == native;
    });
    for (std::size_t i = 0; i < gone; ++i) {
        context.async.retract();
    }
}

} // namespace softverbs

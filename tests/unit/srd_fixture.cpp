// SPDX-License-Identifier: BSD-3-Clause
// The library finds these functions in the program. They call the functions of softverbs.
#include "srd_fixture.hpp"

#include <dlfcn.h>

using rdmabuf::testing::efadv_calls;

namespace {

template <class Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

} // namespace

extern "C" {

int efadv_query_device(ibv_context* ibvctx, efadv_device_attr* attr, std::uint32_t inlen) {
    if (efadv_calls.query_error != 0) {
        return efadv_calls.query_error;
    }
    const int error = next<decltype(efadv_query_device)>("efadv_query_device")(ibvctx, attr, inlen);
    attr->device_caps &= ~efadv_calls.removed_caps;
    return error;
}

ibv_qp* efadv_create_qp_ex(ibv_context* ibvctx, ibv_qp_init_attr_ex* attr_ex,
                           efadv_qp_init_attr* efa_attr, std::uint32_t inlen) {
    efadv_calls.created.push_back(*attr_ex);
    efadv_calls.created_extra.push_back(*efa_attr);
    return next<decltype(efadv_create_qp_ex)>("efadv_create_qp_ex")(ibvctx, attr_ex, efa_attr,
                                                                    inlen);
}

} // extern "C"

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

inline void check(ucs_status_t status, const char* function) {
    if (status != UCS_OK) {
        throw std::runtime_error(std::string(function) + ": " + ucs_status_string(status));
    }
}

/// A context of UCP with one worker, for messages with tags.
struct UcpWorker {
    /// @param more_features  features in addition to UCP_FEATURE_TAG
    explicit UcpWorker(std::uint64_t more_features = 0) {
        ucp_config_t* config = nullptr;
        check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
        ucp_params_t parameters{};
        parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
        parameters.features = UCP_FEATURE_TAG | more_features;
        const ucs_status_t status = ucp_init(&parameters, config, &context);
        ucp_config_release(config);
        check(status, "ucp_init");
        ucp_worker_params_t options{};
        options.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        options.thread_mode = UCS_THREAD_MODE_SINGLE;
        check(ucp_worker_create(context, &options, &worker), "ucp_worker_create");
    }
    UcpWorker(const UcpWorker&) = delete;
    UcpWorker& operator=(const UcpWorker&) = delete;
    ~UcpWorker() {
        if (worker != nullptr) {
            ucp_worker_destroy(worker);
        }
        if (context != nullptr) {
            ucp_cleanup(context);
        }
    }

    /// Returns the address with which other workers connect to this one.
    [[nodiscard]] std::vector<std::byte> address() const {
        ucp_address_t* address = nullptr;
        std::size_t length = 0;
        check(ucp_worker_get_address(worker, &address, &length), "ucp_worker_get_address");
        const auto* const bytes = reinterpret_cast<const std::byte*>(address);
        std::vector<std::byte> copy(bytes, bytes + length);
        ucp_worker_release_address(worker, address);
        return copy;
    }
    /// Creates an endpoint to the worker with this address.
    [[nodiscard]] ucp_ep_h connect(const std::vector<std::byte>& to) const {
        ucp_ep_params_t parameters{};
        parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        parameters.address = reinterpret_cast<const ucp_address_t*>(to.data());
        ucp_ep_h endpoint = nullptr;
        check(ucp_ep_create(worker, &parameters, &endpoint), "ucp_ep_create");
        return endpoint;
    }

    ucp_context_h context = nullptr;
    ucp_worker_h worker = nullptr;
};

/// Frees a completed request. @return false if the request has not completed
[[nodiscard]] inline bool completed(void* request) {
    if (request == nullptr) {
        return true;
    }
    if (UCS_PTR_IS_ERR(request)) {
        check(UCS_PTR_STATUS(request), "ucp_tag_send_nbx or ucp_tag_recv_nbx");
    }
    const ucs_status_t status = ucp_request_check_status(request);
    if (status == UCS_INPROGRESS) {
        return false;
    }
    ucp_request_free(request);
    check(status, "ucp_request_check_status");
    return true;
}

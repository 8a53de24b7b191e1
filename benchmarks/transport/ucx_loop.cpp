// SPDX-License-Identifier: BSD-3-Clause
#include <stdexcept>
#include <string>

#include "message_loop.hpp"

#if RDMABUF_BENCHMARK_HAVE_UCP

#include <ucp/api/ucp.h>

#include <vector>

namespace {

void check(ucs_status_t status, const char* function) {
    if (status != UCS_OK) {
        throw std::runtime_error(std::string(function) + ": " + ucs_status_string(status));
    }
}

/// A context with a worker. Its memory is allocated by the program, as that of the other loop.
struct End {
    End() {
        ucp_config_t* config = nullptr;
        check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
        ucp_params_t parameters{};
        parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
        parameters.features = UCP_FEATURE_TAG;
        const ucs_status_t status = ucp_init(&parameters, config, &context);
        ucp_config_release(config);
        check(status, "ucp_init");
        ucp_worker_params_t of_worker{};
        of_worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        of_worker.thread_mode = UCS_THREAD_MODE_SINGLE;
        check(ucp_worker_create(context, &of_worker, &worker), "ucp_worker_create");
    }
    End(const End&) = delete;
    End& operator=(const End&) = delete;
    ~End() {
        if (worker != nullptr) {
            ucp_worker_destroy(worker);
        }
        if (context != nullptr) {
            ucp_cleanup(context);
        }
    }

    ucp_context_h context = nullptr;
    ucp_worker_h worker = nullptr;
    ucp_ep_h endpoint = nullptr;
};

class UcxLoop final : public MessageLoop {
  public:
    explicit UcxLoop(std::size_t largest) : bytes_(2 * largest) {
        connect(sender_, receiver_);
        connect(receiver_, sender_);
    }

    void run(std::size_t size, long count) override {
        for (long i = 0; i < count; ++i) {
            ucp_request_param_t parameters{};
            void* receive = ucp_tag_recv_nbx(receiver_.worker, bytes_.data() + bytes_.size() / 2,
                                             size, 1, ~ucp_tag_t{0}, &parameters);
            void* send = ucp_tag_send_nbx(sender_.endpoint, bytes_.data(), size, 1, &parameters);
            bool receiving = true;
            bool sending = true;
            while (receiving || sending) {
                receiving = receiving && !done(receiver_, receive);
                sending = sending && !done(sender_, send);
            }
        }
    }

  private:
    static void connect(End& from, const End& to) {
        ucp_address_t* address = nullptr;
        std::size_t length = 0;
        check(ucp_worker_get_address(to.worker, &address, &length), "ucp_worker_get_address");
        ucp_ep_params_t parameters{};
        parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        parameters.address = address;
        const ucs_status_t status = ucp_ep_create(from.worker, &parameters, &from.endpoint);
        ucp_worker_release_address(to.worker, address);
        check(status, "ucp_ep_create");
    }
    static bool done(End& end, void* request) {
        if (request == nullptr) {
            return true;
        }
        if (UCS_PTR_IS_ERR(request)) {
            check(UCS_PTR_STATUS(request), "ucp_tag_send_nbx or ucp_tag_recv_nbx");
        }
        if (ucp_request_check_status(request) == UCS_INPROGRESS) {
            ucp_worker_progress(end.worker);
        }
        const ucs_status_t status = ucp_request_check_status(request);
        if (status == UCS_INPROGRESS) {
            return false;
        }
        check(status, "ucp_request_check_status");
        ucp_request_free(request);
        return true;
    }

    std::vector<std::byte> bytes_;
    End sender_;
    End receiver_;
};

} // namespace

std::unique_ptr<MessageLoop> make_ucx_loop(std::size_t largest) {
    return std::make_unique<UcxLoop>(largest);
}

#else

std::unique_ptr<MessageLoop> make_ucx_loop(std::size_t) {
    throw std::runtime_error("built without UCX: install libucx-dev");
}

#endif

// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <memory>
#include <stdexcept>

#include "message_loop.hpp"

#if RDMABUF_BENCHMARK_HAVE_UCP

#include <vector>

#include "ucp_worker.hpp"

namespace {

/// A worker with an endpoint to the other worker.
struct End {
    UcpWorker self;
    ucp_ep_h endpoint = nullptr;
};

class UcxLoop final : public MessageLoop {
  public:
    explicit UcxLoop(std::size_t largest) : bytes_(2 * largest) {
        sender_.endpoint = sender_.self.connect(receiver_.self.address());
        receiver_.endpoint = receiver_.self.connect(sender_.self.address());
    }

    void run(std::size_t size, long count) override {
        for (long i = 0; i < count; ++i) {
            ucp_request_param_t parameters{};
            void* receive =
                ucp_tag_recv_nbx(receiver_.self.worker, bytes_.data() + bytes_.size() / 2, size, 1,
                                 ~ucp_tag_t{0}, &parameters);
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
    [[gnu::always_inline]] static bool done(End& end, void* request) {
        if (request != nullptr && !UCS_PTR_IS_ERR(request) &&
            ucp_request_check_status(request) == UCS_INPROGRESS) {
            ucp_worker_progress(end.self.worker);
        }
        return completed(request);
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

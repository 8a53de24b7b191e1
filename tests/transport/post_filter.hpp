// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <functional>
#include <utility>

namespace rdmabuf::testing {

/// While this object exists, a function decides which work requests ibv_post_send(3) accepts on the
/// queue pairs of a context. Only one PostFilter may exist at a time.
class PostFilter {
  public:
    /// Returns 0, or the error with which the call fails. The call then posts the work requests
    /// before this one.
    using ErrorOf = std::function<int(const ibv_qp& queue_pair, const ibv_send_wr& work)>;

    PostFilter(ibv_context* context, ErrorOf error_of) : context_(context) {
        original = context_->ops.post_send;
        filter = std::move(error_of);
        context_->ops.post_send = post;
    }
    PostFilter(const PostFilter&) = delete;
    PostFilter& operator=(const PostFilter&) = delete;
    ~PostFilter() {
        context_->ops.post_send = original;
        filter = nullptr;
    }

  private:
    static int post(ibv_qp* queue_pair, ibv_send_wr* work, ibv_send_wr** failed) {
        ibv_send_wr* last = nullptr;
        for (ibv_send_wr* i = work; i != nullptr; last = i, i = i->next) {
            const int error = filter(*queue_pair, *i);
            if (error == 0) {
                continue;
            }
            int earlier = 0;
            if (last != nullptr) {
                last->next = nullptr;
                earlier = original(queue_pair, work, failed);
                last->next = i;
            }
            if (earlier == 0) {
                *failed = i;
            }
            return earlier != 0 ? earlier : error;
        }
        return original(queue_pair, work, failed);
    }

    ibv_context* context_;
    static inline decltype(ibv_context_ops::post_send) original = nullptr;
    static inline ErrorOf filter;
};

} // namespace rdmabuf::testing

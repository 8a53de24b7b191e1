// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstdint>
#include <optional>
#include <system_error>
#include <vector>

#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/transport.hpp>

#include "message_loop.hpp"
#include "results.hpp"

namespace {

using namespace rdmabuf::transport;

class LibraryLoop : public MessageLoop {
  public:
    explicit LibraryLoop(std::size_t largest)
        : bytes_(2 * largest),
          sender_(value(Endpoint::open(rdmabuf::Context::open_first(), rdmabuf::Resolver()))),
          receiver_(value(Endpoint::open(rdmabuf::Context::open_first(), rdmabuf::Resolver()))),
          sent_(value(sender_.register_memory(bytes_.data(), largest))),
          received_(value(receiver_.register_memory(bytes_.data() + largest, largest))),
          from_(bytes_.data()),
          to_(bytes_.data() + largest) {
        Listener listener = value(receiver_.listen("127.0.0.1"));
        Connector connector = value(sender_.start_connect(listener.handle()));
        while (!to_receiver_ || !to_sender_) {
            advance(to_receiver_, [&] { return connector.try_connect(to_receiver_); });
            advance(to_sender_, [&] { return listener.try_accept(to_sender_); });
        }
    }

    void run(std::size_t size, long count) override {
        for (long i = 0; i < count; ++i) {
            Request receive;
            Request send;
            check(to_sender_->irecv(received_, to_, size, 1, receive));
            check(to_receiver_->isend(sent_, from_, size, 1, send));
            bool receiving = true;
            bool sending = true;
            while (receiving || sending) {
                receiving = receiving && !done(*to_sender_, receive);
                sending = sending && !done(*to_receiver_, send);
            }
        }
    }

  protected:
    template <class Call>
    static void advance(const std::optional<Channel>& channel, const Call& call) {
        if (!channel) {
            const std::error_code error = call();
            check(error.value() == EAGAIN ? std::error_code() : error);
        }
    }
    [[gnu::always_inline]] static bool done(Channel& channel, Request& request) {
        const Completion completion = channel.test(request);
        check(completion.error);
        return completion.done;
    }

    std::vector<std::byte> bytes_;
    Endpoint sender_;
    Endpoint receiver_;
    Memory sent_;
    Memory received_;
    std::byte* from_;
    std::byte* to_;
    std::optional<Channel> to_receiver_;
    std::optional<Channel> to_sender_;
};

class ListLoop final : public LibraryLoop {
  public:
    ListLoop(std::size_t block, bool prepared)
        : LibraryLoop(blocks * block), remote_(value(received_.remote())), prepared_(prepared) {
        for (std::size_t i = 0; i < blocks; ++i) {
            entries_.push_back({.memory = &sent_,
                                .address = from_ + i * block,
                                .length = block,
                                .remote = &remote_,
                                .offset = i * block});
        }
        check(to_receiver_->prepare_put_list(entries_, list_));
    }

    void run(std::size_t /*size*/, long count) override {
        for (long i = 0; i < count; i += blocks) {
            Request put;
            check(prepared_ ? to_receiver_->iput_prepared_list(list_, put)
                            : to_receiver_->iput_list(entries_, put));
            while (!done(*to_receiver_, put)) {
            }
        }
    }

  private:
    static constexpr std::size_t blocks = 256;

    RemoteMemory remote_;
    std::vector<TransferEntry> entries_;
    PreparedList list_;
    bool prepared_;
};

} // namespace

std::unique_ptr<MessageLoop> make_list_loop(std::size_t largest, bool prepared) {
    return std::make_unique<ListLoop>(largest, prepared);
}

std::unique_ptr<MessageLoop> make_library_loop(std::size_t largest) {
    return std::make_unique<LibraryLoop>(largest);
}

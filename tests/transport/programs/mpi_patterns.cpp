// SPDX-License-Identifier: BSD-3-Clause
// The communication patterns of MPI programs over transport.hpp, between all ranks under mpirun:
// point to point, with wildcards, and one-sided operations. MPI is only used to start the ranks and
// to exchange handles.
#include <mpi.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/transport.hpp>

#include "waiting.hpp"

namespace {

using namespace rdmabuf::transport;
using rdmabuf::testing::eventually;
using rdmabuf::testing::time_limit;

constexpr Tag any_tag_mask = 0;

void require(bool holds, const std::string& what) {
    if (!holds) {
        throw std::runtime_error(what);
    }
}
void check(std::error_code error, const char* what) {
    if (error) {
        throw std::system_error(error, what);
    }
}
template <class T>
T value(rdmabuf::Result<T> result) {
    require(static_cast<bool>(result), result.message());
    return *std::move(result);
}

/// One rank: a channel to each other rank, and registered memory.
class Rank {
  public:
    static constexpr std::size_t memory_size = std::size_t{8} << 20U;

    Rank(int rank, int size)
        : rank_(static_cast<std::size_t>(rank)),
          size_(static_cast<std::size_t>(size)),
          endpoint_(value(Endpoint::open(rdmabuf::Context::open_first(), rdmabuf::Resolver(),
                                         {.depth = 4096, .timeout = time_limit}))),
          bytes_(memory_size),
          memory_(value(endpoint_.register_memory(
              bytes_.data(), bytes_.size(),
              Endpoint::default_access | rdmabuf::Access::remote_atomic))) {
        connect();
        exchange_memory();
    }

    [[nodiscard]] std::size_t rank() const { return rank_; }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] Channel& to(std::size_t rank) { return *channels_[rank]; }
    [[nodiscard]] const RemoteMemory& remote(std::size_t rank) const { return remote_[rank]; }
    [[nodiscard]] const Memory& memory() const { return memory_; }
    [[nodiscard]] std::byte* at(std::size_t offset) { return bytes_.data() + offset; }
    [[nodiscard]] std::size_t rank_of(std::uint32_t channel) const { return ranks_.at(channel); }

    [[nodiscard]] Request send(std::size_t to_rank, std::size_t offset, std::size_t length,
                               Tag tag) {
        Request request;
        check(to(to_rank).isend(memory_, at(offset), length, tag, request), "isend");
        return request;
    }
    [[nodiscard]] Request receive(std::size_t from, std::size_t offset, std::size_t length,
                                  Tag tag) {
        Request request;
        check(to(from).irecv(memory_, at(offset), length, tag, request), "irecv");
        return request;
    }
    [[nodiscard]] Request receive_any(std::size_t offset, std::size_t length, Tag tag, Tag mask) {
        Request request;
        check(endpoint_.irecv(memory_, at(offset), length, tag, mask, request), "irecv");
        return request;
    }
    Completion finish(std::size_t peer, Request request) {
        return finish([&] { return to(peer).test(request); });
    }
    Completion finish_any(Request request) {
        return finish([&] { return endpoint_.test(request); });
    }
    /// All ranks continue after all ranks have called this function. Makes progress meanwhile.
    void barrier() {
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        for (int done = 0; done == 0;) {
            endpoint_.progress();
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        }
    }

  private:
    template <class Test>
    static Completion finish(const Test& test) {
        Completion completion;
        require(eventually([&] { return (completion = test()).done; }),
                "a request does not complete");
        check(completion.error, "a request failed");
        return completion;
    }
    void connect() {
        Listener listener = value(endpoint_.listen("127.0.0.1"));
        std::vector<std::byte> handles(size_ * Handle::wire_size);
        MPI_Allgather(listener.handle().bytes().data(), Handle::wire_size, MPI_BYTE, handles.data(),
                      Handle::wire_size, MPI_BYTE, MPI_COMM_WORLD);
        channels_.resize(size_);
        // Each rank connects to the lower ranks, and tells them its own rank by the first message.
        std::vector<Connector> connectors;
        for (std::size_t peer = 0; peer < rank_; ++peer) {
            connectors.push_back(value(endpoint_.start_connect(value(Handle::decode(
                std::span(handles).subspan(peer * Handle::wire_size, Handle::wire_size))))));
        }
        std::vector<Channel> accepted;
        std::size_t connected = 0;
        const auto connect_some = [&] {
            for (std::size_t peer = 0; peer < rank_; ++peer) {
                if (!channels_[peer]) {
                    const std::error_code error = connectors[peer].try_connect(channels_[peer]);
                    check(error.value() == EAGAIN ? std::error_code() : error, "try_connect");
                    connected += channels_[peer] ? 1 : 0;
                }
            }
            std::optional<Channel> channel;
            const std::error_code error = listener.try_accept(channel);
            check(error.value() == EAGAIN ? std::error_code() : error, "try_accept");
            if (channel) {
                accepted.push_back(*std::move(channel));
            }
            return connected == rank_ && accepted.size() == size_ - rank_ - 1;
        };
        require(eventually(connect_some), "the ranks do not connect");
        for (std::size_t peer = 0; peer < rank_; ++peer) {
            *at(0) = static_cast<std::byte>(rank_);
            finish(peer, send(peer, 0, 1, 0));
        }
        for (Channel& channel : accepted) {
            Request request;
            check(channel.irecv(memory_, at(1), 1, 0, request), "irecv");
            finish([&] { return channel.test(request); });
            channels_[static_cast<std::size_t>(*at(1))] = std::move(channel);
        }
        for (std::size_t peer = 0; peer < size_; ++peer) {
            if (peer != rank_) {
                ranks_[to(peer).number()] = peer;
            }
        }
    }
    void exchange_memory() {
        const RemoteMemory mine = value(memory_.remote());
        std::vector<RemoteMemory> all(size_);
        MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE,
                      MPI_COMM_WORLD);
        for (std::size_t peer = 0; peer < size_; ++peer) {
            remote_.push_back(
                value(RemoteMemory::decode(std::as_bytes(std::span(all).subspan(peer, 1)))));
        }
    }

    std::size_t rank_;
    std::size_t size_;
    Endpoint endpoint_;
    std::vector<std::byte> bytes_;
    Memory memory_;
    std::vector<std::optional<Channel>> channels_;
    std::map<std::uint32_t, std::size_t> ranks_;
    std::vector<RemoteMemory> remote_;
};

/// The byte at @p i of a message from @p from to @p to.
std::byte expected(std::size_t from, std::size_t to, std::size_t i) {
    return static_cast<std::byte>(from * 31 + to * 7 + i * 3 + i / 251);
}
void fill(Rank& rank, std::size_t to, std::size_t offset, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i) {
        *rank.at(offset + i) = expected(rank.rank(), to, i);
    }
}
void require_message(Rank& rank, std::size_t from, std::size_t offset, std::size_t length,
                     const char* what) {
    for (std::size_t i = 0; i < length; ++i) {
        require(*rank.at(offset + i) == expected(from, rank.rank(), i),
                std::string(what) + ": byte " + std::to_string(i) + " from rank " +
                    std::to_string(from) + " is wrong");
    }
}

// Patterns

/// Each rank sends to each other rank at the same time, with messages of every protocol.
void all_to_all(Rank& rank) {
    constexpr std::size_t slot = std::size_t{1} << 20U;
    for (const std::size_t length : {std::size_t{0}, std::size_t{8}, std::size_t{1000},
                                     std::size_t{8192}, std::size_t{8193}, slot}) {
        std::vector<Request> receives(rank.size());
        std::vector<Request> sends(rank.size());
        for (std::size_t peer = 0; peer < rank.size(); ++peer) {
            if (peer != rank.rank()) {
                receives[peer] = rank.receive(peer, (4 + peer) * slot, slot, 5);
            }
        }
        for (std::size_t peer = 0; peer < rank.size(); ++peer) {
            if (peer != rank.rank()) {
                fill(rank, peer, peer * slot, length);
                sends[peer] = rank.send(peer, peer * slot, length, 5);
            }
        }
        for (std::size_t peer = 0; peer < rank.size(); ++peer) {
            if (peer != rank.rank()) {
                require(rank.finish(peer, receives[peer]).bytes == length,
                        "all_to_all: the length of a message is wrong");
                rank.finish(peer, sends[peer]);
                require_message(rank, peer, (4 + peer) * slot, length, "all_to_all");
            }
        }
        rank.barrier();
    }
}

/// Rank 0 receives messages of any rank and any tag; the others send their rank as the tag.
void any_source_any_tag(Rank& rank) {
    constexpr std::size_t messages = 50;
    if (rank.rank() != 0) {
        for (std::size_t i = 0; i < messages; ++i) {
            *rank.at(0) = static_cast<std::byte>(i);
            rank.finish(0, rank.send(0, 0, 1, 1000 + rank.rank()));
        }
    } else {
        std::vector<std::size_t> next(rank.size());
        for (std::size_t i = 0; i < messages * (rank.size() - 1); ++i) {
            const Completion completion = rank.finish_any(rank.receive_any(64, 8, 0, any_tag_mask));
            const std::size_t from = rank.rank_of(completion.channel);
            require(completion.tag == 1000 + from, "any_source: the tag belongs to another rank");
            require(*rank.at(64) == static_cast<std::byte>(next[from]++),
                    "any_source: messages of a rank have overtaken each other");
        }
    }
    rank.barrier();
}

/// Each rank writes to all ranks, then all synchronize by a fence, as MPI_Win_fence() does. All
/// ranks also increment one counter of rank 0.
void one_sided(Rank& rank) {
    constexpr std::size_t slot = std::size_t{1} << 19U;
    constexpr std::size_t counter = 4096;
    constexpr std::uint64_t increments = 100;
    std::memset(rank.at(counter), 0, 8);
    rank.barrier();
    for (std::size_t peer = 0; peer < rank.size(); ++peer) {
        if (peer == rank.rank()) {
            continue;
        }
        fill(rank, peer, slot, slot);
        Request put;
        check(rank.to(peer).iput(rank.memory(), rank.at(slot), slot, rank.remote(peer),
                                 (4 + rank.rank()) * slot, put),
              "iput");
        rank.finish(peer, put);
        Request fence;
        check(rank.to(peer).ifence(fence), "ifence");
        rank.finish(peer, fence);
    }
    rank.barrier();
    for (std::size_t peer = 0; peer < rank.size(); ++peer) {
        if (peer != rank.rank()) {
            require_message(rank, peer, (4 + peer) * slot, slot, "one_sided");
        }
    }
    if (rank.rank() != 0) {
        for (std::uint64_t i = 0; i < increments; ++i) {
            Request add;
            check(rank.to(0).ifetch_add(rank.memory(), reinterpret_cast<std::uint64_t*>(rank.at(0)),
                                        rank.remote(0), counter, 1, add),
                  "ifetch_add");
            rank.finish(0, add);
        }
    }
    rank.barrier();
    if (rank.rank() == 0) {
        std::uint64_t sum = 0;
        std::memcpy(&sum, rank.at(counter), sizeof sum);
        require(sum == increments * (rank.size() - 1), "one_sided: the counter is wrong");
    }
}

} // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int number = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &number);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    try {
        require(size == 2 || size == 4, "usage: mpirun -n RANKS mpi_patterns, with 2 or 4 ranks");
        Rank rank(number, size);
        using Pattern = std::pair<const char*, std::function<void(Rank&)>>;
        for (const auto& [name, pattern] : {Pattern{"all_to_all", all_to_all},
                                            {"any_source_any_tag", any_source_any_tag},
                                            {"one_sided", one_sided}}) {
            rank.barrier();
            pattern(rank);
            std::printf("rank %d: %s passed\n", number, name);
            std::fflush(stdout);
        }
        rank.barrier();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "mpi_patterns: rank %d: %s\n", number, error.what());
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
    MPI_Finalize();
    return EXIT_SUCCESS;
}

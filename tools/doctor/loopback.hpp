// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/region.hpp>

namespace rdmabuf::tools::doctor {

/// The error of a request that completed with another status than IBV_WC_SUCCESS.
class FailedRequest : public Error {
  public:
    explicit FailedRequest(const WorkCompletion& completion);

    [[nodiscard]] ibv_wc_status status() const noexcept { return status_; }

  private:
    ibv_wc_status status_;
};

/// Two queue pairs of one device that can transfer data to each other: SRD if the device has it
/// (EFA), otherwise RC.
class Loopback {
  public:
    /// The maximum number of requests in flight. The caller must not exceed it.
    static constexpr std::uint32_t depth = 16;
    /// The maximum time to wait for a completion.
    static constexpr std::chrono::seconds timeout{20};

    /// Uses the first active port of the device.
    /// @throws Error if a verbs call fails; ENETDOWN if no port is active
    explicit Loopback(const ProtectionDomain& pd);

    /// Posts an RDMA write of the bytes at @p local. @throws Error if the request is refused
    void post_write(const ibv_sge& local, RemoteAddress remote) const;
    /// Posts an RDMA read into the bytes at @p local. @throws Error if the request is refused
    void post_read(const ibv_sge& local, RemoteAddress remote) const;
    /// Waits for the completion of one request.
    /// @throws FailedRequest (EIO) if the request failed; Error ETIMEDOUT if there is no completion
    ///         in time
    void wait() const;

    /// Returns "RC" or "SRD".
    [[nodiscard]] const char* type() const noexcept { return handle_ ? "SRD" : "RC"; }

  private:
    struct Ends;
    [[nodiscard]] static Ends connect(const ProtectionDomain& pd, const CompletionQueue& cq);
    Loopback(const CompletionQueue& cq, const ProtectionDomain& pd);
    Loopback(CompletionQueue cq, Ends ends);

    CompletionQueue cq_;
    QueuePair initiator_;
    QueuePair target_;
    /// SRD only: the address handle of the target.
    std::optional<AddressHandle> handle_;
    /// SRD only.
    QueuePairAddress target_address_;
};

struct Loopback::Ends {
    QueuePair initiator;
    QueuePair target;
    std::optional<AddressHandle> handle;
    QueuePairAddress target_address;
};

/// The result of send_one_byte().
struct LoopbackResult {
    /// 0, or the errno value of the error, for example of the verbs call that failed.
    int error = 0;
    /// The type of the queue pairs, or the text of the error.
    std::string text;
};

/// Creates a protection domain, a completion queue and two queue pairs, and writes one byte of host
/// memory from one to the other. Writes no byte if the device has SRD queue pairs without RDMA
/// write.
[[nodiscard]] LoopbackResult send_one_byte(const Context& context);

} // namespace rdmabuf::tools::doctor

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include <rdmabuf/result.hpp>
#include <rdmabuf/transport/detail/list.hpp>
#include <rdmabuf/transport/detail/request_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {

/// An RDMA write or read that is not posted completely. It may be striped over several devices and
/// may consist of many work requests.
struct RdmaTransfer {
    /// The range of a transfer that one device transfers.
    struct Share {
        /// Offset of the next byte to post.
        std::uint64_t next = 0;
        std::uint64_t end = 0;
        /// True while a work request of this device must still be posted. This can also be true if
        /// `next` is equal to `end`, because a write of 0 bytes can have immediate data.
        bool unposted = false;
    };

    bool is_read = false;
    /// True if the last work request of each device has immediate data.
    bool has_immediate = false;
    /// True if a FIN message follows the data of the first device. The last work request of this
    /// device then has no immediate data.
    bool has_fin = false;
    /// True if later messages of the channel must be posted after this transfer is posted on the
    /// first device.
    bool keeps_order = false;
    Immediate immediate{};
    RequestState* request = nullptr;
    const MemoryState* memory = nullptr;
    std::uint64_t local_address = 0;
    std::uint64_t remote_address = 0;
    RemoteTable remote{};
    std::array<Share, max_rails> shares{};
    /// The links of the list of transfers of a channel.
    Link<RdmaTransfer> link{};
};

/// A pool of unused transfers. It grows when all transfers are in use.
class TransferPool {
  public:
    /// @return nullptr if memory is exhausted
    [[nodiscard]] RdmaTransfer* take() noexcept {
        if (free_ == nullptr) {
            auto made = attempt([&] {
                transfers_.push_back(std::make_unique<RdmaTransfer>());
                return transfers_.back().get();
            });
            return made ? *made : nullptr;
        }
        RdmaTransfer* const transfer = free_;
        free_ = transfer->link.next;
        return transfer;
    }
    void give_back(RdmaTransfer* transfer) noexcept {
        transfer->link.next = free_;
        free_ = transfer;
    }

  private:
    std::vector<std::unique_ptr<RdmaTransfer>> transfers_;
    RdmaTransfer* free_ = nullptr;
};

} // namespace rdmabuf::transport::detail

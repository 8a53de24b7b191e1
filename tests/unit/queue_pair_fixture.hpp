// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include <rdmabuf/queue_pair.hpp>

#include "softverbs_fixture.hpp"

namespace rdmabuf::testing {

inline constexpr const char* modify = "ibv_modify_qp";

/// For tests that make and connect queue pairs.
class QueuePairTest : public SoftverbsTest {
  protected:
    std::optional<Basics> basics_ = Basics();

    /// For tests that need other devices.
    template <class Use>
    void use(const Use& device) {
        basics_.reset();
        device();
        basics_.emplace();
    }
    [[nodiscard]] QueuePairOptions options(
        QueuePairType type = QueuePairType::reliable_connected) const {
        return {.send_cq = basics_->cq, .recv_cq = basics_->cq, .type = type};
    }
    [[nodiscard]] PreparedQueuePair prepare(const QueuePairOptions& options) const {
        return QueuePair::prepare(basics_->pd, options);
    }
    [[nodiscard]] PreparedQueuePair prepare(QueuePairType type) const {
        return prepare(options(type));
    }
    auto refusal(const QueuePairOptions& options) {
        return error_of([&] { static_cast<void>(prepare(options)); });
    }
    static QueuePairAddress peer(QueuePairType type) {
        QueuePairAddress address{.type = type, .number = 0x77, .psn = 0x1234, .mtu = IBV_MTU_512};
        address.gid = Gid::from_native(gid_entry("::ffff:192.0.2.9", 0, IBV_GID_TYPE_ROCE_V2).gid);
        address.lid = 9;
        address.max_dest_rd_atomic = 4;
        return address;
    }
    static const ibv_qp_init_attr_ex& made() { return record().qps.back(); }
    static const QpModification& modification(std::size_t i) {
        return record().modifications.at(i);
    }
};

} // namespace rdmabuf::testing

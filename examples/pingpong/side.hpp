// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>

#include "endpoint.hpp"
#include "validator.hpp"

namespace pingpong {

/// One end of a run, in steps that wait for nothing but what is already under way: one thread can
/// play both ends by calling their steps in turn. Each transfer goes
///
///     prepare     both ends     not timed
///     begin       initiator     the watch starts before it
///     answer      responder     only where the data goes there and back
///     complete    initiator     the watch stops after it
///     check       both ends     not timed
class Side {
  public:
    Side(Endpoint& endpoint, Role role, const Options& options);

    void prepare(std::uint64_t transfer);
    void begin(std::uint64_t transfer);
    void answer(std::uint64_t transfer);
    void complete(std::uint64_t transfer);
    void check(std::uint64_t transfer);

    [[nodiscard]] Endpoint& endpoint() noexcept { return *endpoint_; }
    [[nodiscard]] Validated validated() const noexcept { return validator_.validated(); }

  private:
    void post_data(std::uint64_t transfer);
    void await_data(std::uint64_t transfer);
    void post_fetch(std::uint64_t transfer);

    Endpoint* endpoint_;
    Verb verb_;
    bool validate_;
    Validator validator_;
    ibv_sge outgoing_;
    ibv_sge incoming_;
    rdmabuf::RemoteAddress peer_outgoing_;
    rdmabuf::RemoteAddress peer_incoming_;
};

} // namespace pingpong

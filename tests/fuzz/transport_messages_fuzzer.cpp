// SPDX-License-Identifier: BSD-3-Clause
// Messages, immediate data and RDMA writes of a peer of transport::Channel, between requests of the
// program.
#include "malicious_peer.hpp"
#include "transport_scene.hpp"

namespace {

class Scene : public rdmabuf::testing::MaliciousPeerTest {
  public:
    using MaliciousPeerTest::play;

  private:
    void TestBody() override {}
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    rdmabuf::testing::play_scene<Scene>({data, size});
    return 0;
}

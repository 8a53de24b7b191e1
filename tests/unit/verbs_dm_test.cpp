// SPDX-License-Identifier: BSD-3-Clause
#include <optional>

#include <rdmabuf/providers/verbs_dm.hpp>

#include "exporter_suite.hpp"
#include "softverbs_fixture.hpp"

namespace rdmabuf::testing {
namespace {

/// A device with more memory than that of the other tests, opened, and what SoftverbsTest checks at
/// the end.
class Machine final : public SoftverbsTest {
  public:
    Machine() {
        change_device([](ibv_device_attr_ex& device) { device.max_dm_size = 1 << 20; });
        context.emplace(Context::open_first());
    }
    ~Machine() override { context.reset(); }
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;
    void TestBody() override {} // NOLINT(readability-identifier-naming)

    static inline std::optional<Context> context;
};

const Subject subject{.name = "verbs_dm",
                      .make = [] { return make_verbs_dm_exporter(*Machine::context); },
                      .machine = [] { return std::make_shared<Machine>(); },
                      .works_with = "the memory of soft0, 1048576 bytes",
                      .makes_dmabufs = false,
                      .mapped = false};

INSTANTIATE_TEST_SUITE_P(VerbsDm, ExporterSuite, ::testing::Values(subject));

} // namespace
} // namespace rdmabuf::testing

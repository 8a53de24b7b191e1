// SPDX-License-Identifier: BSD-3-Clause
// On a fake of ibv_alloc_buf(): this proves what the library does with the buffers, and not what
// libibverbs or a provider does.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include <rdmabuf/providers/verbs_buf.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/registration.hpp>
#include <rdmabuf/resolver.hpp>

#include "child_process.hpp"
#include "exporter_suite.hpp"
#include "fails_with.hpp"
#include "softverbs_fixture.hpp"
#include "verbs_buf_calls.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* export_call = "ibv_export_buf_dmabuf_fd";

/// softverbs with one protection domain, and the checks of SoftverbsTest at the end.
class Machine final : public SoftverbsTest {
  public:
    Machine() { pd.emplace(Context::open_first()); }
    ~Machine() override { pd.reset(); }
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;
    void TestBody() override {} // NOLINT(readability-identifier-naming)

    static inline std::optional<ProtectionDomain> pd;
};

const Subject subject{.name = "verbs_buf",
                      .make = [] { return make_verbs_buf_exporter(*Machine::pd); },
                      .machine = [] { return std::make_shared<Machine>(); },
                      .works_with = "buffers of a protection domain of soft0",
                      .makes_dmabufs = false};

INSTANTIATE_TEST_SUITE_P(VerbsBuf, ExporterSuite, ::testing::Values(subject));

class VerbsBuf : public SoftverbsTest {
  protected:
    void TearDown() override {
        exporter_.reset();
        EXPECT_EQ(fake_verbs_buf.live, 0);
        fake_verbs_buf = {};
    }
    auto refusal(std::size_t size = 4096) {
        return error_of([&] { static_cast<void>(exporter_->allocate(size)); });
    }

    Basics basics_;
    std::shared_ptr<VerbsBufExporter> exporter_ = make_verbs_buf_exporter(basics_.pd);
};

TEST_F(VerbsBuf, RegistersABufferAsADmaBufAndMovesItsBytes) {
    const Buffer buffer = exporter_->allocate(5000);
    EXPECT_EQ(buffer.size(), 2 * page_size());
    const rdmabuf::Registration region = register_memory(
        basics_.pd, Resolver({exporter_}), buffer.address() + 100, 4096, {.access = full_access});
    EXPECT_EQ(region.path(), RegistrationPath::dmabuf);

    std::vector<std::byte> local(64);
    fill(local, 3);
    const MemoryRegion here(basics_.pd, local.data(), local.size());
    const QueuePair qp = connect_to_itself(
        QueuePair::prepare(basics_.pd, {.send_cq = basics_.cq, .recv_cq = basics_.cq}));
    const ibv_sge entry = here.sge(0, 64);
    ASSERT_TRUE(qp.post_write({&entry, 1}, region.remote().at(8)));
    WorkCompletion completion{};
    ASSERT_EQ(basics_.cq.wait({&completion, 1}, std::chrono::seconds(20)), 1);
    EXPECT_TRUE(succeeded(completion)) << describe(completion);
    EXPECT_EQ(std::memcmp(buffer.cpu_access().bytes().data() + 108, local.data(), 64), 0);
}

TEST_F(VerbsBuf, BufferSurvivesExporterAndProtectionDomain) {
    std::optional<ProtectionDomain> pd(basics_.context);
    auto exporter = make_verbs_buf_exporter(*pd);
    std::optional<Buffer> buffer = exporter->allocate(4096);
    std::optional<ExportedRange> range = exporter->export_range(buffer->address(), 100);
    exporter.reset();
    pd.reset();
    buffer.reset();
    EXPECT_EQ(fake_verbs_buf.live, 1) << "the exported range keeps the memory";
    range.reset();
    EXPECT_EQ(fake_verbs_buf.live, 0);
}

TEST_F(VerbsBuf, ForkedChildFreesNoBuffer) {
    std::optional<Buffer> buffer = exporter_->allocate(4096);
    std::optional<ExportedRange> range = exporter_->export_range(buffer->address(), 100);
    const pid_t child = ::fork();
    if (child == 0) {
        buffer.reset();
        range.reset();
        ::_exit(fake_verbs_buf.live == 1 ? 0 : 1);
    }
    expect_success(child);
    range.reset();
    buffer.reset();
}

TEST_F(VerbsBuf, KnowsABufferOfTheProgramUntilItIsRemoved) {
    const Buffer own = exporter_->allocate(4096); // Only its address is used.
    const auto other = make_verbs_buf_exporter(basics_.pd);
    auto* const handle = reinterpret_cast<ibv_buf*>(&basics_);
    fake_verbs_buf.exported_size = 8192;
    AddedRange added = other->add(handle, reinterpret_cast<void*>(own.address()), 4096);
    EXPECT_EQ(other->export_range(own.address() + 10, 20).offset(), 10U);
    EXPECT_EQ(added.allocation().kind, MemoryKind::system);
    added.remove();
    EXPECT_FALSE(other->find(own.address()));
}

TEST_F(VerbsBuf, RefusesToAddWhatCannotBeABuffer) {
    auto* const handle = reinterpret_cast<ibv_buf*>(&basics_);
    void* const address = &basics_;
    const auto add = [&](ibv_buf* buffer, void* base, std::size_t size) {
        return error_of([&] { static_cast<void>(exporter_->add(buffer, base, size)); });
    };
    EXPECT_THAT(add(nullptr, address, 64), fails_with("add", EINVAL, "the ibv_buf is null"));
    EXPECT_THAT(add(handle, nullptr, 64), fails_with("add", EINVAL, ""));
    EXPECT_THAT(add(handle, address, 0), fails_with("add", EINVAL, ""));
    fake_verbs_buf.exported_size = 4096;
    EXPECT_THAT(add(handle, address, 4097),
                fails_with(export_call, ERANGE, "has 4096 bytes, and the buffer 4097"));
}

TEST_F(VerbsBuf, SaysThatLibibverbsIsTooOld) {
    fake_verbs_buf.exists = false;
    const Availability availability = exporter_->availability();
    EXPECT_FALSE(availability);
    EXPECT_THAT(availability.reason, HasSubstr("no ibv_export_buf_dmabuf_fd (IBVERBS_1.18)"));
    EXPECT_EQ(availability.remedy, "use rdma-core 65 or newer");
    EXPECT_THAT(refusal(), fails_with(export_call, EOPNOTSUPP, "use rdma-core 65 or newer"));
}

TEST_F(VerbsBuf, FreesOrdinaryMemoryAndSaysHowToRegisterIt) {
    fake_verbs_buf.export_error = ENODATA;
    EXPECT_THAT(exporter_->availability().remedy, HasSubstr("register them with ibv_reg_mr"));
    EXPECT_THAT(refusal(), fails_with(export_call, ENODATA, "are ordinary memory"));
    EXPECT_EQ(fake_verbs_buf.live, 0);
}

TEST_F(VerbsBuf, ReportsTheErrorsOfBothCallsAndFreesTheBuffer) {
    fake_verbs_buf.alloc_error = ENOMEM;
    EXPECT_THAT(refusal(),
                fails_with("ibv_alloc_buf", ENOMEM, "4096 bytes were requested from soft0"));
    EXPECT_THAT(exporter_->availability().reason, HasSubstr("ibv_alloc_buf"));
    fake_verbs_buf.alloc_error = 0;
    fake_verbs_buf.alloc_fails = true;
    errno = EBADF; // of an earlier call
    EXPECT_THAT(refusal(), fails_with("ibv_alloc_buf", ENOMEM, "4096 bytes were requested"));
    fake_verbs_buf.alloc_fails = false;
    fake_verbs_buf.export_error = EMFILE;
    EXPECT_THAT(refusal(), fails_with(export_call, EMFILE, "cannot be exported"));
    EXPECT_EQ(fake_verbs_buf.live, 0);
    EXPECT_THAT(refusal(0), fails_with("allocate", EINVAL, "0 bytes"));
}

} // namespace
} // namespace rdmabuf::testing

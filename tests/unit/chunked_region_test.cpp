// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include <rdmabuf/chunked_region.hpp>
#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/rdmabuf.hpp>

#include "fake_exporter.hpp"
#include "softverbs_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::Basics;
using testing::error_of;
using testing::fails_with;
using testing::FakeExporter;
using ::testing::SizeIs;
using testing::SoftverbsTest;

constexpr std::size_t page = 4096; // the sizes below are multiples of larger ones, too
constexpr std::size_t limit = 65536;
constexpr std::size_t size = 10 * limit;
constexpr Access writable = Access::local_write | Access::remote_write;

class ChunkedRegionTest : public SoftverbsTest {
  protected:
    ChunkedRegionTest() {
        testing::change_device(
            [](ibv_device_attr_ex& attributes) { attributes.orig_attr.max_mr_size = limit + 100; });
    }

    Basics basics_;
    std::shared_ptr<FakeExporter> exporter_ = std::make_shared<FakeExporter>(size);
    Resolver resolver_{{exporter_}};

    [[nodiscard]] std::uintptr_t base() const { return exporter_->allocation.base; }
    [[nodiscard]] ChunkedRegion make(std::size_t offset, std::size_t length,
                                     const ChunkedRegionOptions& options = {}) const {
        return {basics_.pd, resolver_, base() + offset, length, options};
    }
    [[nodiscard]] auto refusal(std::size_t length, const ChunkedRegionOptions& options = {}) const {
        return error_of([&] { static_cast<void>(make(0, length, options)); });
    }
};

TEST_F(ChunkedRegionTest, CoversEveryByteInOrder) {
    for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, page - 1, 3 * page + 17}) {
        for (const std::size_t length : {std::size_t{1}, page, limit - 1, limit, limit + 1,
                                         2 * limit, 3 * limit + 5, 8 * limit}) {
            const ChunkedRegion region = make(offset, length);
            EXPECT_EQ(region.chunk_size(), limit);
            std::uint64_t at = base() + offset;
            for (const LocalChunk& chunk : region.chunks()) {
                EXPECT_EQ(chunk.address, at);
                EXPECT_TRUE(at == region.iova() || at % page == 0);
                EXPECT_GT(chunk.length, 0U);
                EXPECT_LE(chunk.length, limit);
                at += chunk.length;
            }
            EXPECT_EQ(at, base() + offset + length);
            EXPECT_EQ(region.chunks().size(), (offset % page + length + limit - 1) / limit);
            EXPECT_EQ(softverbs_live(SOFTVERBS_MR), region.chunks().size());
        }
    }
}

TEST_F(ChunkedRegionTest, ExportsNotEachOfManyChunks) {
    for (const std::size_t chunks : {64U, 65U, 129U, 160U}) {
        SCOPED_TRACE(chunks);
        exporter_->exports.clear();
        exporter_->most_exported = 0;
        const std::size_t before = testing::record().registrations.size();
        const ChunkedRegion region = make(8, chunks * page - 8, {.chunk_size = page});
        EXPECT_EQ(region.chunks().size(), chunks);
        EXPECT_GE(exporter_->exports.size(), 32U) << "an import maps the whole dma-buf";
        EXPECT_LE(exporter_->most_exported, 1U + 64U) << "the range, and not each chunk";
        for (std::size_t i = 0; i < chunks; ++i) {
            EXPECT_EQ(testing::record().registrations[before + i].start, i == 0 ? 8 : i * page);
        }
    }
}

// Under a translating IOMMU, the import of a dma-buf maps all of it, whatever the length of the
// region: chunks of one dma-buf would need more mappings than one region.
TEST_F(ChunkedRegionTest, ExportsAndRegistersEachChunkWhereItLies) {
    const ChunkedRegion region = make(page + 8, 2 * limit, {.registration = {.access = writable}});
    EXPECT_EQ(exporter_->exports.size(), 1U + 3U) << "the range, and each chunk";
    EXPECT_EQ(exporter_->releases, 4U);
    EXPECT_EQ(region.path(), RegistrationPath::dmabuf);
    EXPECT_EQ(region.length(), 2 * limit);
    const auto& made = testing::record().registrations;
    ASSERT_THAT(made, SizeIs(3));
    ASSERT_THAT(region.chunks(), SizeIs(3));
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(made[i].function, "ibv_reg_dmabuf_mr");
        EXPECT_EQ(made[i].start, region.chunks()[i].address - base());
        EXPECT_EQ(made[i].iova, region.chunks()[i].address);
        EXPECT_EQ(made[i].length, region.chunks()[i].length);
        EXPECT_EQ(made[i].access, static_cast<unsigned>(writable));
        EXPECT_EQ(region.chunks()[i].lkey, region.native(i)->lkey);
        EXPECT_EQ(region.chunks()[i].rkey, region.native(i)->rkey);
    }
    EXPECT_EQ(made[0].length, limit - 8);
    EXPECT_NE(made[0].fd, made[1].fd);
}

TEST_F(ChunkedRegionTest, RegistersChunksOfOneDmaBufWhereTheyCannotBeExportedOnTheirOwn) {
    exporter_->on_export = [this] {
        if (exporter_->exports.size() > 2) {
            throw Error(EMFILE, "fakeExport");
        }
    };
    EXPECT_EQ(make(page, 3 * limit).chunks().size(), 3U);
    const auto& made = testing::record().registrations;
    ASSERT_THAT(made, SizeIs(3));
    EXPECT_EQ(made[0].fd, made[2].fd);
    EXPECT_EQ(made[2].start, page + 2 * limit);
    EXPECT_EQ(exporter_->releases, 2U);
}

TEST_F(ChunkedRegionTest, ClosesTheDmaBufsOfTheChunksBeforeItTriesTheNextExporter) {
    exporter_->offset_by = 8;
    const auto other = std::make_shared<FakeExporter>(size);
    other->on_export = [this] { EXPECT_EQ(exporter_->exported, 0U); };
    const ChunkedRegion region(basics_.pd, Resolver({exporter_, other}), base(), 2 * limit);
    EXPECT_EQ(exporter_->most_exported, 1U + 2U) << "the range, and each chunk";
    EXPECT_EQ(other->exports.size(), 1U + 2U);
}

TEST_F(ChunkedRegionTest, FindsTheChunkOfAnAddress) {
    const ChunkedRegion region = make(100, 5 * limit);
    EXPECT_EQ(region.find(region.iova() - 1), nullptr);
    EXPECT_EQ(region.find(0), nullptr);
    EXPECT_EQ(region.find(region.iova() + region.length()), nullptr);
    EXPECT_EQ(region.find(~std::uint64_t{0}), nullptr);
    for (const LocalChunk& chunk : region.chunks()) {
        EXPECT_EQ(region.find(chunk.address), &chunk);
        EXPECT_EQ(region.find(chunk.address + chunk.length / 2), &chunk);
        EXPECT_EQ(region.find(chunk.address + chunk.length - 1), &chunk);
    }
}

TEST_F(ChunkedRegionTest, TakesSmallerChunksAndAnIova) {
    const ChunkedRegion region =
        make(16, 3 * page, {.registration = {.iova = 0x10010}, .chunk_size = 2 * page});
    ASSERT_THAT(region.chunks(), SizeIs(2));
    EXPECT_EQ(region.chunk_size(), 2 * page);
    EXPECT_EQ(region.chunks()[0].address, 0x10010U);
    EXPECT_EQ(region.chunks()[0].length, 2 * page - 16);
    EXPECT_EQ(region.chunks()[1].address, 0x10000U + 2 * page);
}

TEST_F(ChunkedRegionTest, RegistersHostMemoryInChunks) {
    std::vector<std::byte> memory(3 * limit);
    const ChunkedRegion region(basics_.pd, resolver_,
                               reinterpret_cast<std::uintptr_t>(memory.data()), memory.size());
    EXPECT_EQ(region.path(), RegistrationPath::host);
    EXPECT_GE(region.chunks().size(), 3U);
    EXPECT_LE(region.chunks().size(), 4U);
}

TEST_F(ChunkedRegionTest, DescribesItselfToPeers) {
    const ChunkedRegion region = make(8, 3 * limit, {.registration = {.access = writable}});
    testing::tell_keys_apart(region.native(1));
    const RemoteChunks remote = region.remote();
    ASSERT_EQ(remote.chunks().size(), region.chunks().size());
    for (std::size_t i = 0; i < remote.chunks().size(); ++i) {
        EXPECT_EQ(remote.chunks()[i].address, region.chunks()[i].address);
        EXPECT_EQ(remote.chunks()[i].length, region.chunks()[i].length);
        EXPECT_EQ(remote.chunks()[i].rkey, region.native(i)->rkey);
    }
    EXPECT_EQ(RemoteChunks::decode(remote.encode()).value(), remote);
    region.native(1)->rkey = region.native(1)->lkey;
}

TEST_F(ChunkedRegionTest, RefusesChunksThatCannotBe) {
    EXPECT_THAT(refusal(size, {.chunk_size = page + 1}),
                fails_with("ChunkedRegion", EINVAL,
                           "a chunk of 4097 bytes is not a multiple of the page size"));
    EXPECT_THAT(refusal(size, {.chunk_size = 2 * limit}),
                fails_with("ChunkedRegion", EINVAL, "soft0 registers at most 65636 at once"));
    EXPECT_THAT(
        refusal(size, {.registration = {.access = Access::local_write | Access::zero_based}}),
        fails_with("ChunkedRegion", EINVAL, "zero_based does not support chunks"));
    EXPECT_THAT(refusal(0), fails_with("ChunkedRegion", EINVAL, "a length of 0"));
    EXPECT_THAT(refusal(2 * size), fails_with("ChunkedRegion", ERANGE, "leaves the allocation"));
    testing::change_device(
        [](ibv_device_attr_ex& attributes) { attributes.orig_attr.max_mr_size = 100; });
    EXPECT_THAT(refusal(size), fails_with("ChunkedRegion", EINVAL, "registers at most 100 bytes"));
    EXPECT_TRUE(testing::record().registrations.empty());
}

TEST_F(ChunkedRegionTest, GivesOutNoPiecesOnceRevoked) {
    ChunkedRegion region = make(0, size);
    const RemoteChunks remote = region.remote();
    const Transfer all{
        .local_address = region.iova(), .remote_address = remote.address(), .length = size};
    EXPECT_TRUE(region.split(remote, all).status());
    region.mark_revoked();
    TransferSplitter splitter = region.split(remote, all);
    TransferPiece piece;
    EXPECT_EQ(splitter.status(), Status(ENODEV));
    EXPECT_FALSE(splitter.next(piece));
    EXPECT_THAT(error_of([&] { static_cast<void>(region.remote()); }),
                fails_with("ChunkedRegion::remote", ENODEV, "revoked"));
}

TEST_F(ChunkedRegionTest, CloseThatFailsCanBeRepeated) {
    ChunkedRegion region = make(0, 4 * limit);
    const RemoteChunks remote = region.remote();
    ASSERT_EQ(softverbs_fail_call("ibv_dereg_mr", 2, EBUSY), 0);
    EXPECT_THAT(error_of([&] { region.close(); }), fails_with("ibv_dereg_mr", EBUSY, ""));
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 1U);
    EXPECT_TRUE(region.chunks().empty());
    EXPECT_THAT(error_of([&] { static_cast<void>(region.remote()); }),
                fails_with("ChunkedRegion::remote", EBADF, ""));
    region.close();
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 0U);
    EXPECT_EQ(region.state(), RegistrationState::closed);
    EXPECT_EQ(region.split(remote, {.length = 1}).status(), Status(EBADF));
}

TEST_F(ChunkedRegionTest, MovesWithItsChunks) {
    ChunkedRegion region = make(0, 2 * limit);
    const std::uint32_t lkey = region.chunks()[1].lkey;
    ChunkedRegion moved = std::move(region);
    EXPECT_EQ(moved.find(moved.iova() + limit)->lkey, lkey);
    moved = make(0, 3 * limit);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 3U);
}

#ifndef RDMABUF_SANITIZED // sanitizers end the program when an allocation is that large
TEST_F(ChunkedRegionTest, HasNoMemoryForAnEndlessListOfChunks) {
    exporter_->allocation.base = page;
    exporter_->allocation.length = ~std::size_t{0} / 2;
    EXPECT_THAT(refusal(exporter_->allocation.length - page, {.chunk_size = page}),
                fails_with("ChunkedRegion", ENOMEM, "no host memory left"));
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 0U);
}
#endif

// Devices that refuse a dma-buf because of its length

class LongChunks : public SoftverbsTest {
  protected:
    static constexpr std::size_t mebibyte = std::size_t{1} << 20U;

    Basics basics_;
    std::shared_ptr<FakeExporter> exporter_ = std::make_shared<FakeExporter>(1024 * mebibyte);
    Resolver resolver_{{exporter_}};

    /// Lets the first @p count registrations fail.
    static void refuse(unsigned count, int error) {
        // The function is copied for each call.
        const auto left = std::make_shared<unsigned>(count);
        testing::before_each_call([left, error](const char* verb) {
            if (std::string_view(verb) == "ibv_reg_dmabuf_mr" && *left != 0) {
                --*left;
                testing::fail_next("ibv_reg_dmabuf_mr", error);
            }
        });
    }
    [[nodiscard]] ChunkedRegion make(std::size_t length,
                                     const ChunkedRegionOptions& options = {}) const {
        return {basics_.pd, resolver_, exporter_->allocation.base, length, options};
    }
};

TEST_F(LongChunks, AreHalvedUntilTheDeviceTakesThem) {
    refuse(2, ENOMEM);
    const ChunkedRegion quarters = make(1024 * mebibyte);
    EXPECT_GE(quarters.chunk_size(), 256 * mebibyte);
    EXPECT_EQ(quarters.chunks().size(), 4U);
    testing::before_each_call(nullptr);

    testing::fail_next("ibv_reg_dmabuf_mr", EOPNOTSUPP);
    Trail trail;
    const ChunkedRegion halves = make(1024 * mebibyte, {.registration = {.trail = &trail}});
    EXPECT_GE(halves.chunk_size(), 512 * mebibyte);
    EXPECT_EQ(halves.chunks().size(), 2U);
    EXPECT_EQ(to_string(trail), to_string(halves.trail()));
    EXPECT_EQ(trail.size(), 1U) << "the attempt with chunks of this size";
}

TEST_F(LongChunks, AreNotHalvedForEverNorWhenTheirSizeWasChosen) {
    Trail trail;
    refuse(~0U, ENOMEM);
    EXPECT_THAT(error_of([&] {
                    static_cast<void>(make(256 * mebibyte, {.registration = {.trail = &trail}}));
                }),
                fails_with("ChunkedRegion", ENOMEM, ""));
    EXPECT_EQ(trail[0].error, ENOMEM);
    const std::size_t tried = exporter_->exports.size();
    EXPECT_LE(tried, 1U + 3U + 5U) << "256 MiB, 128 MiB and 64 MiB";
    EXPECT_THAT(
        error_of([&] { static_cast<void>(make(256 * mebibyte, {.chunk_size = 128 * mebibyte})); }),
        fails_with("ChunkedRegion", ENOMEM, ""));
    testing::before_each_call(nullptr);
    EXPECT_EQ(exporter_->exports.size(), tried + 3);
}

TEST_F(LongChunks, AreShorterThan256MebibytesWhereConnectXRefusesMore) {
    testing::change_device(
        [](ibv_device_attr_ex& attributes) { attributes.orig_attr.vendor_id = 0x02c9; });
    refuse(1, EINVAL);
    const ChunkedRegion region = make(512 * mebibyte);
    testing::before_each_call(nullptr);
    EXPECT_EQ(region.chunk_size(), 65535 * testing::page_size());
    EXPECT_EQ(region.chunks().size(), 3U);

    refuse(1, EINVAL);
    EXPECT_THAT(error_of([&] { static_cast<void>(make(128 * mebibyte)); }),
                fails_with("ChunkedRegion", EINVAL, ""));
    testing::before_each_call(nullptr);
}

// With the profile that registers at most 1 MiB, as real transfers: chunked differently at both
// ends.
TEST(SmallRegions, TransferBetweenDifferentChunksMovesEveryByte) {
    ASSERT_EQ(softverbs_reset("small-mr", 1), 0);
    constexpr std::size_t megabyte = std::size_t{1} << 20U;
    constexpr std::size_t length = 3 * megabyte + 12345;
    const Basics basics;
    const auto memfd = make_memfd_exporter();
    const Resolver resolver({memfd});
    const Buffer source = memfd->allocate(4 * megabyte);
    const Buffer target = memfd->allocate(4 * megabyte);
    EXPECT_THAT(error_of([&] {
                    static_cast<void>(
                        register_memory(basics.pd, resolver, source.address(), source.size()));
                }),
                fails_with("register_memory", EINVAL,
                           "the range has 4194304 bytes and soft0 registers at most 1048576 at "
                           "once; register the range in parts"));

    const ChunkedRegion ours(basics.pd, resolver, source.address() + 7, length);
    const ChunkedRegion theirs(basics.pd, resolver, target.address() + 4099, length,
                               {.registration = {.access = writable}, .chunk_size = 53 * page});
    EXPECT_EQ(ours.chunks().size(), 4U);
    const RemoteChunks remote = RemoteChunks::decode(theirs.remote().encode()).value();
    {
        const auto bytes = source.cpu_access();
        testing::fill(bytes.bytes(), 3);
    }
    const QueuePair qp = testing::connect_to_itself(
        QueuePair::prepare(basics.pd, {.send_cq = basics.cq, .recv_cq = basics.cq}));
    std::uint64_t moved = 0;
    TransferSplitter splitter = ours.split(
        remote,
        {.local_address = ours.iova(), .remote_address = remote.address(), .length = length},
        200'000);
    for (const TransferPiece& piece : splitter) {
        ASSERT_TRUE(qp.post_write(piece.local, piece.remote));
        WorkCompletion done{};
        while (basics.cq.poll(done) == 0) {
        }
        ASSERT_TRUE(succeeded(done)) << describe(done);
        moved += piece.local.length;
    }
    EXPECT_TRUE(splitter.status());
    EXPECT_EQ(moved, length);
    const auto from = source.cpu_access(CpuAccessMode::read);
    const auto to = target.cpu_access(CpuAccessMode::read);
    EXPECT_TRUE(std::equal(from.bytes().begin() + 7, from.bytes().begin() + 7 + length,
                           to.bytes().begin() + 4099));
    EXPECT_EQ(to.bytes()[4098], std::byte{0});
    EXPECT_EQ(to.bytes()[4099 + length], std::byte{0});
}

} // namespace
} // namespace rdmabuf

// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/chunked_region.hpp>

namespace rdmabuf {
namespace {

std::vector<LocalChunk> local_chunks(std::uint64_t address,
                                     const std::vector<std::uint64_t>& lengths) {
    std::vector<LocalChunk> chunks;
    std::uint32_t key = 1000;
    for (const std::uint64_t length : lengths) {
        chunks.push_back({.address = address, .length = length, .lkey = ++key, .rkey = 0});
        address += length;
    }
    return chunks;
}

std::vector<RemoteRegion> remote_chunks(std::uint64_t address,
                                        const std::vector<std::uint64_t>& lengths) {
    std::vector<RemoteRegion> chunks;
    std::uint32_t key = 2000;
    for (const std::uint64_t length : lengths) {
        chunks.push_back({.address = address, .length = length, .rkey = ++key});
        address += length;
    }
    return chunks;
}

std::vector<TransferPiece> pieces_of(TransferSplitter splitter) {
    std::vector<TransferPiece> pieces;
    for (const TransferPiece& piece : splitter) {
        pieces.push_back(piece);
    }
    return pieces;
}

/// What a piece moves, byte by byte.
struct Byte {
    std::uint64_t local;
    std::uint32_t lkey;
    std::uint64_t remote;
    std::uint32_t rkey;
    friend bool operator==(const Byte&, const Byte&) = default;
};

/// Each byte by itself, looked for from the beginning: what the splitter must come to.
std::vector<Byte> reference(const std::vector<LocalChunk>& local,
                            const std::vector<RemoteRegion>& remote, const Transfer& transfer) {
    std::vector<Byte> bytes;
    for (std::uint64_t i = 0; i < transfer.length; ++i) {
        Byte byte{.local = transfer.local_address + i,
                  .lkey = 0,
                  .remote = transfer.remote_address + i,
                  .rkey = 0};
        for (const LocalChunk& chunk : local) {
            if (byte.local >= chunk.address && byte.local < chunk.address + chunk.length) {
                byte.lkey = chunk.lkey;
            }
        }
        for (const RemoteRegion& chunk : remote) {
            if (byte.remote >= chunk.address && byte.remote < chunk.address + chunk.length) {
                byte.rkey = chunk.rkey;
            }
        }
        bytes.push_back(byte);
    }
    return bytes;
}

/// How many pieces there have to be at least: one more wherever a key changes or a message is full.
std::size_t fewest(const std::vector<Byte>& bytes, std::uint32_t most) {
    std::size_t pieces = 0;
    std::uint64_t in_piece = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const bool same_keys =
            i != 0 && bytes[i].lkey == bytes[i - 1].lkey && bytes[i].rkey == bytes[i - 1].rkey;
        if (!same_keys || in_piece == most) {
            ++pieces;
            in_piece = 0;
        }
        ++in_piece;
    }
    return pieces;
}

class Random {
  public:
    explicit Random(unsigned seed) : engine_(seed) {}
    std::uint64_t operator()(std::uint64_t least, std::uint64_t most) {
        return std::uniform_int_distribution(least, most)(engine_);
    }
    std::vector<std::uint64_t> lengths(std::uint64_t count, std::uint64_t most) {
        std::vector<std::uint64_t> all(count);
        for (std::uint64_t& each : all) {
            each = (*this)(1, most);
        }
        return all;
    }

  private:
    std::mt19937_64 engine_;
};

template <class Chunk>
std::uint64_t total(const std::vector<Chunk>& chunks) {
    return chunks.back().address + chunks.back().length - chunks.front().address;
}

TEST(TransferSplitter, MovesTheBytesOfAByteWiseReferenceInTheFewestPieces) {
    for (unsigned seed = 1; seed <= 2000; ++seed) {
        Random random(seed);
        const auto local =
            local_chunks(random(0, 1U << 20U), random.lengths(random(1, 12), random(1, 40)));
        const auto remote =
            remote_chunks(random(0, 1U << 20U), random.lengths(random(1, 12), random(1, 40)));
        const std::uint64_t local_offset = random(0, total(local) - 1);
        const std::uint64_t remote_offset = random(0, total(remote) - 1);
        const Transfer transfer{.local_address = local.front().address + local_offset,
                                .remote_address = remote.front().address + remote_offset,
                                .length = random(0, std::min(total(local) - local_offset,
                                                             total(remote) - remote_offset))};
        const auto most = static_cast<std::uint32_t>(random(1, 50));
        TransferSplitter splitter(local, remote, transfer, most);
        ASSERT_TRUE(splitter.status()) << "seed " << seed;

        std::vector<Byte> bytes;
        std::size_t pieces = 0;
        for (TransferPiece piece; splitter.next(piece); ++pieces) {
            ASSERT_GT(piece.local.length, 0U);
            ASSERT_LE(piece.local.length, most);
            for (std::uint32_t i = 0; i < piece.local.length; ++i) {
                bytes.push_back({.local = piece.local.addr + i,
                                 .lkey = piece.local.lkey,
                                 .remote = piece.remote.address + i,
                                 .rkey = piece.remote.rkey});
            }
            ASSERT_EQ(splitter.remaining(), transfer.length - bytes.size());
        }
        const std::vector<Byte> expected = reference(local, remote, transfer);
        ASSERT_EQ(bytes, expected) << "seed " << seed;
        ASSERT_EQ(pieces, fewest(expected, most)) << "seed " << seed;
    }
}

TEST(TransferSplitter, RefusesWhatLeavesTheChunksByOneByte) {
    const auto local = local_chunks(1000, {10, 20, 30});
    const auto remote = remote_chunks(5000, {25, 35});
    const auto status = [&](const Transfer& transfer) {
        TransferSplitter splitter(local, remote, transfer, TransferSplitter::most);
        TransferPiece piece;
        EXPECT_EQ(splitter.next(piece), splitter.status().ok() && transfer.length != 0);
        return splitter.status().error();
    };
    EXPECT_EQ(status({.local_address = 1000, .remote_address = 5000, .length = 60}), 0);
    EXPECT_EQ(status({.local_address = 1059, .remote_address = 5059, .length = 1}), 0);
    EXPECT_EQ(status({.local_address = 1000, .remote_address = 5000, .length = 61}), ERANGE);
    EXPECT_EQ(status({.local_address = 999, .remote_address = 5000, .length = 1}), ERANGE);
    EXPECT_EQ(status({.local_address = 1000, .remote_address = 4999, .length = 1}), ERANGE);
    EXPECT_EQ(status({.local_address = 1060, .remote_address = 5000, .length = 1}), ERANGE);
    EXPECT_EQ(status({.local_address = 1000, .remote_address = 5060, .length = 1}), ERANGE);
    EXPECT_EQ(status({.local_address = 1001, .remote_address = 5000, .length = 60}), ERANGE);
    EXPECT_EQ(status({.local_address = 1000, .remote_address = 5001, .length = 60}), ERANGE);
    EXPECT_EQ(status({.local_address = 1000, .remote_address = 5000, .length = ~std::uint64_t{0}}),
              ERANGE);
    EXPECT_EQ(status({.local_address = 1, .remote_address = 2, .length = 0}), 0);
}

TEST(TransferSplitter, RefusesMessagesOfNoBytes) {
    const auto local = local_chunks(0, {10});
    const auto remote = remote_chunks(0, {10});
    TransferSplitter splitter(local, remote, {.length = 10}, 0);
    EXPECT_EQ(splitter.status(), Status(EINVAL));
    EXPECT_TRUE(pieces_of(splitter).empty());
}

TEST(TransferSplitter, HasNoPiecesWithoutChunks) {
    EXPECT_EQ(TransferSplitter({}, {}, {.length = 1}, 1).status(), Status(ERANGE));
    EXPECT_TRUE(pieces_of(TransferSplitter({}, {}, {}, 1)).empty());
    EXPECT_EQ(TransferSplitter(Status(ENODEV)).status(), Status(ENODEV));
}

TEST(TransferSplitter, CutsMessagesOfTwoGigabytesAtTheEndOfTheAddresses) {
    constexpr std::uint64_t gigabyte = std::uint64_t{1} << 30U;
    const std::uint64_t address = ~std::uint64_t{0} - 5 * gigabyte;
    const auto local = local_chunks(address, {5 * gigabyte});
    const auto remote = remote_chunks(address, {3 * gigabyte, 2 * gigabyte});
    const auto pieces = pieces_of(TransferSplitter(
        local, remote,
        {.local_address = address, .remote_address = address, .length = 5 * gigabyte},
        TransferSplitter::most));
    ASSERT_EQ(pieces.size(), 3U);
    EXPECT_EQ(pieces[0].local.length, 2 * gigabyte);
    EXPECT_EQ(pieces[1].local.length, gigabyte);
    EXPECT_EQ(pieces[2].local.length, 2 * gigabyte);
    EXPECT_EQ(pieces[1].remote.rkey, 2001U);
    EXPECT_EQ(pieces[2].remote.rkey, 2002U);
}

} // namespace
} // namespace rdmabuf

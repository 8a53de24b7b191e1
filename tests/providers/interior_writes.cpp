// SPDX-License-Identifier: BSD-3-Clause
#include "interior_writes.hpp"

#include <algorithm>
#include <vector>

#include <rdmabuf/dmabuf_mr.hpp>

#include "loopback.hpp"
#include "support.hpp"

namespace rdmabuf::testing {

void expect_interior_writes(const Exporter& exporter, std::uint64_t from, std::uint64_t to,
                            std::size_t size, const BytesAt& bytes_at) {
    const auto bytes_of = [&](std::uint64_t address) {
        return std::span(static_cast<std::byte*>(bytes_at(address)), size);
    };
    const auto put = [&](std::uint64_t address, unsigned seed) {
        fill(bytes_of(address), seed);
        return std::vector<std::byte>(bytes_of(address).begin(), bytes_of(address).end());
    };
    const auto region = [&](const End& end, std::uint64_t address, std::size_t length) {
        return DmaBufMR(end.pd, exporter.export_range(address, length), {.access = full_access});
    };
    Loopback net;
    net.connect();
    unsigned seed = 0;
    for (const std::size_t length :
         {std::size_t{1}, page_size() - 1, page_size() + 1, 3 * page_size(), std::size_t{70'001}}) {
        for (const std::size_t offset : {std::size_t{1}, std::size_t{511}, page_size() + 13}) {
            const auto source = put(from, ++seed);
            auto expected = put(to, ++seed);
            const DmaBufMR here = region(net.a, from + offset, length);
            const DmaBufMR there = region(net.b, to + 2 * offset, length);
            ASSERT_TRUE(net.a.qp->post_write(here.sge(0, static_cast<std::uint32_t>(length)),
                                             there.remote(), {.wr_id = seed}));
            net.a.expect(seed);
            const auto sent = source.begin() + static_cast<std::ptrdiff_t>(offset);
            std::copy(sent, sent + static_cast<std::ptrdiff_t>(length),
                      expected.begin() + static_cast<std::ptrdiff_t>(2 * offset));
            EXPECT_TRUE(std::ranges::equal(bytes_of(to), expected))
                << length << " bytes at " << offset;
            EXPECT_TRUE(std::ranges::equal(bytes_of(from), source));
        }
    }
}

} // namespace rdmabuf::testing

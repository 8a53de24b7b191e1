// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <rdmabuf/exporter.hpp>

namespace rdmabuf::testing {

/// Where a test sees memory of a fake driver.
using BytesAt = std::function<void*(std::uint64_t address)>;

/// Writes by RDMA from inside one allocation into another, in odd sizes and at odd offsets, and
/// expects all other bytes of both to be what they were.
void expect_interior_writes(const Exporter& exporter, std::uint64_t from, std::uint64_t to,
                            std::size_t size, const BytesAt& bytes_at);

} // namespace rdmabuf::testing

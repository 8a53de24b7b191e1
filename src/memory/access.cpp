// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cstdio>
#include <utility>

#include <rdmabuf/access.hpp>

namespace rdmabuf {
namespace {

constexpr std::array<std::pair<Access, const char*>, 11> flag_names{{
    {Access::local_write, "local_write"},
    {Access::remote_write, "remote_write"},
    {Access::remote_read, "remote_read"},
    {Access::remote_atomic, "remote_atomic"},
    {Access::memory_window_bind, "memory_window_bind"},
    {Access::zero_based, "zero_based"},
    {Access::on_demand, "on_demand"},
    {Access::hugetlb, "hugetlb"},
    {Access::flush_global, "flush_global"},
    {Access::flush_persistent, "flush_persistent"},
    {Access::relaxed_ordering, "relaxed_ordering"},
}};

} // namespace

std::string to_string(Access access) {
    std::string text;
    const auto append = [&text](const char* name) {
        text.append(text.empty() ? "" : "|").append(name);
    };
    for (const auto& [flag, name] : flag_names) {
        if (has(access, flag)) {
            append(name);
            access = access & ~flag;
        }
    }
    if (const auto unnamed = static_cast<unsigned>(access); unnamed != 0) {
        std::array<char, 16> digits{};
        std::snprintf(digits.data(), digits.size(), "0x%x", unnamed);
        append(digits.data());
    }
    return text.empty() ? "local_read" : text;
}

} // namespace rdmabuf

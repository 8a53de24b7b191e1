// SPDX-License-Identifier: BSD-3-Clause
#include "settings.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>

#include "log.hpp"

namespace nccl_net {

std::string Environment::text(const char* name) {
    read_.insert(name);
    const char* const value = std::getenv(name); // NOLINT(concurrency-mt-unsafe)
    return value != nullptr ? value : "";
}

std::optional<unsigned> Environment::unsigned_number(const char* name, unsigned max) {
    const std::string value = text(name);
    if (value.empty()) {
        return std::nullopt;
    }
    errno = 0;
    char* end = nullptr;
    const long number = std::strtol(value.c_str(), &end, 0);
    if (errno != 0 || *end != '\0' || (number > 0 && static_cast<unsigned long>(number) > max)) {
        log::warn("init", std::string(name) + "=" + value +
                              " is ignored: it is not a number up to " + std::to_string(max));
        return std::nullopt;
    }
    return number < 0 ? std::nullopt : std::optional(static_cast<unsigned>(number));
}

void Environment::report_unread() const {
    for (char** variable = environ; *variable != nullptr; ++variable) {
        const std::string_view text(*variable);
        const std::string_view name = text.substr(0, text.find('='));
        if ((name.starts_with("NCCL_IB_") || name == "NCCL_GDR_FLUSH_DISABLE") &&
            text.size() > name.size() + 1 && !read_.contains(name)) {
            log::info("init", std::string(name) + " has no effect: the plugin does not read it");
        }
    }
}

std::optional<std::string> find_interface(Environment& environment) {
    const std::string names = environment.text("NCCL_SOCKET_IFNAME");
    const std::string family = environment.text("NCCL_SOCKET_FAMILY");
    if (names.empty() && family.empty()) {
        return std::string();
    }
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0) {
        return std::nullopt;
    }
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, ::freeifaddrs);
    // If NCCL_SOCKET_IFNAME is not set, these lists of interfaces are tried in NCCL's order.
    const std::vector<std::string> lists =
        names.empty() ? std::vector<std::string>{"ib", "^docker,lo,virbr", "docker", "lo", "virbr"}
                      : std::vector<std::string>{names};
    const bool by_family = family == "AF_INET" || family == "AF_INET6";
    for (const std::string& text : lists) {
        const NameList list(text);
        for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
            const int its = each->ifa_addr != nullptr ? each->ifa_addr->sa_family : AF_UNSPEC;
            const NameList::Entry* entry = nullptr;
            if ((its != AF_INET && its != AF_INET6) || (each->ifa_flags & IFF_RUNNING) == 0 ||
                (by_family && (its == AF_INET6) != (family == "AF_INET6")) ||
                !list.selects(each->ifa_name, -1, entry)) {
                continue;
            }
            if (!by_family) {
                return each->ifa_name;
            }
            std::array<char, NI_MAXHOST> address{};
            if (::getnameinfo(each->ifa_addr,
                              its == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in),
                              address.data(), address.size(), nullptr, 0, NI_NUMERICHOST) == 0) {
                return address.data();
            }
        }
    }
    return std::nullopt;
}

NameList::NameList(std::string_view text) {
    const auto skip = [&text](char sign) {
        const bool found = text.starts_with(sign);
        text.remove_prefix(found ? 1 : 0);
        return found;
    };
    inverted_ = skip('^');
    exact_ = skip('=');
    std::istringstream names{std::string(text)};
    for (std::string field; std::getline(names, field, ',');) {
        std::istringstream parts(field);
        Entry entry;
        std::getline(parts, entry.name, ':');
        for (int* const number : {&entry.port, &entry.rail, &entry.plane}) {
            std::string digits;
            if (std::getline(parts, digits, ':') && !digits.empty()) {
                *number = std::atoi(digits.c_str()); // NOLINT(cert-err34-c): NCCL does this
            }
        }
        if (!entry.name.empty()) {
            entries_.push_back(std::move(entry));
        }
    }
}

bool NameList::selects(std::string_view name, int port, const Entry*& entry) const {
    const auto found = std::ranges::find_if(entries_, [&](const Entry& each) {
        return (exact_ ? name == each.name : name.starts_with(each.name)) &&
               (port == -1 || each.port == -1 || port == each.port);
    });
    entry = found == entries_.end() ? nullptr : &*found;
    return (entries_.empty() || entry != nullptr) != inverted_;
}

GidSelection::GidSelection(Environment& environment)
    : index_(environment.number("NCCL_IB_GID_INDEX")) {
    const auto version = environment.number("NCCL_IB_ROCE_VERSION_NUM", 2);
    const std::string family = environment.text("NCCL_IB_ADDR_FAMILY");
    const std::string range = environment.text("NCCL_IB_ADDR_RANGE");
    by_properties_ = version || !family.empty() || !range.empty();
    type_ = version == 1 ? rdmabuf::GidType::roce_v1 : rdmabuf::GidType::roce_v2;
    ipv6_ = family == "AF_INET6";
    const std::size_t slash = range.find('/');
    const std::size_t start = ipv6_ ? 0 : 12;
    if (slash != std::string::npos &&
        ::inet_pton(ipv6_ ? AF_INET6 : AF_INET, range.substr(0, slash).c_str(),
                    &range_.at(start)) == 1) {
        const int bits = std::atoi(range.c_str() + slash + 1); // NOLINT(cert-err34-c)
        prefix_ = bits > 0 && static_cast<std::size_t>(bits) <= 128 - 8 * start
                      ? static_cast<unsigned>(bits) + 8 * static_cast<unsigned>(start)
                      : 0;
    } else if (!range.empty()) {
        log::warn("init", "NCCL_IB_ADDR_RANGE=" + range + " is ignored: it is not an address of " +
                              "NCCL_IB_ADDR_FAMILY, a slash and a prefix length");
    }
}

bool GidSelection::in_range(const rdmabuf::Gid& gid) const {
    for (unsigned bit = ipv6_ ? 0 : 96; bit < prefix_; ++bit) {
        if (((gid.bytes.at(bit / 8) ^ range_.at(bit / 8)) >> (7 - bit % 8) & 1) != 0) {
            return false;
        }
    }
    return true;
}

std::optional<std::uint8_t> GidSelection::index_of(const rdmabuf::Context& context,
                                                   std::uint8_t port) const {
    // NCCL ignores NCCL_IB_GID_INDEX for InfiniBand ports.
    if (index_ && context.port(port).link_layer != IBV_LINK_LAYER_INFINIBAND) {
        return index_;
    }
    if (!by_properties_) {
        return std::nullopt;
    }
    for (const rdmabuf::GidEntry& entry : context.gid_table(port)) {
        if (entry.type == type_ && entry.gid.is_ipv4_mapped() != ipv6_ &&
            !entry.gid.is_link_local() && in_range(entry.gid)) {
            return entry.index;
        }
    }
    return std::nullopt;
}

} // namespace nccl_net

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
#include <limits>
#include <memory>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include <rdmabuf/transport/options.hpp>

#include "log.hpp"

namespace nccl_net {
namespace {

/// Reads environment variables.
class Environment {
  public:
    [[nodiscard]] std::string text_of(const char* name) {
        read_.insert(name);
        const char* const value = std::getenv(name); // NOLINT(concurrency-mt-unsafe)
        return value != nullptr ? value : "";
    }
    /// Returns the number in an environment variable; std::nullopt if the variable is not set, is
    /// negative (NCCL's value for "not set"), or is invalid.
    template <class Number>
    [[nodiscard]] std::optional<Number> number_of(
        const char* name, unsigned max = std::numeric_limits<Number>::max()) {
        const std::string text = text_of(name);
        if (text.empty()) {
            return std::nullopt;
        }
        errno = 0;
        char* end = nullptr;
        const long value = std::strtol(text.c_str(), &end, 0);
        if (errno != 0 || *end != '\0' || (value > 0 && static_cast<unsigned long>(value) > max)) {
            log::warn("init", std::string(name) + "=" + text +
                                  " is ignored: it is not a number up to " + std::to_string(max));
            return std::nullopt;
        }
        return value < 0 ? std::nullopt : std::optional(static_cast<Number>(value));
    }
    [[nodiscard]] bool flag_of(const char* name, bool otherwise) {
        return number_of<std::uint8_t>(name).value_or(otherwise ? 1 : 0) != 0;
    }
    /// Logs the variables of NCCL's InfiniBand network that are set and were not read.
    void report_unread() const {
        for (char** variable = environ; *variable != nullptr; ++variable) {
            const std::string_view text(*variable);
            const std::string_view name = text.substr(0, text.find('='));
            if ((name.starts_with("NCCL_IB_") || name == "NCCL_GDR_FLUSH_DISABLE") &&
                text.size() > name.size() + 1 && !read_.contains(name)) {
                log::info("init",
                          std::string(name) + " has no effect: the plugin does not read it");
            }
        }
    }

  private:
    std::set<std::string_view> read_;
};

/// Returns the name of the first interface in @p all that @p list selects and that has an address
/// of @p family. If @p family is AF_INET or AF_INET6, returns the address instead of the name.
std::optional<std::string> find_interface(const ifaddrs* all, const NameList& list,
                                          const std::string& family) {
    const bool any_family = family != "AF_INET" && family != "AF_INET6";
    for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
        const int its = each->ifa_addr != nullptr ? each->ifa_addr->sa_family : AF_UNSPEC;
        const NameList::Entry* entry = nullptr;
        if ((its != AF_INET && its != AF_INET6) || (each->ifa_flags & IFF_RUNNING) == 0 ||
            (!any_family && (its == AF_INET6) != (family == "AF_INET6")) ||
            !list.selects(each->ifa_name, -1, entry)) {
            continue;
        }
        if (any_family) {
            return each->ifa_name;
        }
        std::array<char, NI_MAXHOST> address{};
        if (::getnameinfo(each->ifa_addr,
                          its == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in),
                          address.data(), address.size(), nullptr, 0, NI_NUMERICHOST) == 0) {
            return address.data();
        }
    }
    return std::nullopt;
}

/// Returns the first interface that the environment selects; see Settings::listen.
std::optional<std::string> find_interface(Environment& environment) {
    const std::string family = environment.text_of("NCCL_SOCKET_FAMILY");
    const std::string names = environment.text_of("NCCL_SOCKET_IFNAME");
    if (names.empty() && family.empty()) {
        return std::string();
    }
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0) {
        return std::nullopt;
    }
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, ::freeifaddrs);
    std::optional<std::string> found;
    // If NCCL_SOCKET_IFNAME is not set, try these lists of interfaces in the order in which NCCL
    // tries them.
    for (const char* const list : {"ib", "^docker,lo,virbr", "docker", "lo", "virbr"}) {
        found = find_interface(first, NameList(names.empty() ? list : names), family);
        if (found || !names.empty()) {
            break;
        }
    }
    return found;
}

} // namespace

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

Settings Settings::read() {
    Environment environment;
    Settings settings;
    settings.nccl_exports = environment.flag_of("RDMABUF_NCCL_DMABUF", false);
    settings.disabled = environment.flag_of("NCCL_IB_DISABLE", false);
    settings.devices = NameList(environment.text_of("NCCL_IB_HCA"));
    settings.listen = find_interface(environment);
    settings.pci_order = environment.flag_of("NCCL_IB_DEVICE_PCI_ORDER", true);
    settings.merge_functions = environment.flag_of("NCCL_IB_MERGE_VFS", true);
    settings.data_direct = environment.flag_of("NCCL_IB_DATA_DIRECT", true);
    settings.relaxed_ordering = environment.flag_of("NCCL_IB_PCI_RELAXED_ORDERING", true);
    settings.merge_devices = environment.flag_of("NCCL_IB_MERGE_NICS", true);
    // NCCL permits up to 128. A value above the maximum of this library is reduced to this maximum
    // instead of ignored, because the user wants many queue pairs.
    settings.queue_pairs =
        std::clamp(environment.number_of<std::uint32_t>("NCCL_IB_QPS_PER_CONNECTION")
                       .value_or(settings.queue_pairs),
                   1U, static_cast<std::uint32_t>(rdmabuf::transport::max_queue_pairs_per_device));
    settings.traffic_class = environment.number_of<std::uint8_t>("NCCL_IB_TC");
    settings.service_level = environment.number_of<std::uint8_t>("NCCL_IB_SL", 15);
    settings.pkey_index =
        environment.number_of<std::uint16_t>("NCCL_IB_PKEY").value_or(settings.pkey_index);
    settings.ack_timeout =
        environment.number_of<std::uint8_t>("NCCL_IB_TIMEOUT", 31).value_or(settings.ack_timeout);
    settings.retry_count =
        environment.number_of<std::uint8_t>("NCCL_IB_RETRY_CNT", 7).value_or(settings.retry_count);

    settings.gid_index_ = environment.number_of<std::uint8_t>("NCCL_IB_GID_INDEX");
    const auto version = environment.number_of<std::uint8_t>("NCCL_IB_ROCE_VERSION_NUM", 2);
    const std::string family = environment.text_of("NCCL_IB_ADDR_FAMILY");
    const std::string range = environment.text_of("NCCL_IB_ADDR_RANGE");
    settings.selects_gid_ = version || !family.empty() || !range.empty();
    settings.gid_type_ = version == 1 ? rdmabuf::GidType::roce_v1 : rdmabuf::GidType::roce_v2;
    settings.ipv6_gid_ = family == "AF_INET6";
    const std::size_t slash = range.find('/');
    const std::size_t start = settings.ipv6_gid_ ? 0 : 12;
    if (slash != std::string::npos &&
        ::inet_pton(settings.ipv6_gid_ ? AF_INET6 : AF_INET, range.substr(0, slash).c_str(),
                    &settings.gid_range_[start]) == 1) {
        const int bits = std::atoi(range.c_str() + slash + 1); // NOLINT(cert-err34-c)
        settings.gid_prefix_ = bits > 0 && static_cast<std::size_t>(bits) <= 128 - 8 * start
                                   ? static_cast<unsigned>(bits) + 8 * static_cast<unsigned>(start)
                                   : 0;
    } else if (!range.empty()) {
        log::warn("init", "NCCL_IB_ADDR_RANGE=" + range + " is ignored: it is not an address of " +
                              "NCCL_IB_ADDR_FAMILY, a slash and a prefix length");
    }
    environment.report_unread();
    return settings;
}

std::optional<std::uint8_t> Settings::gid_index_of(const rdmabuf::Context& context,
                                                   std::uint8_t port) const {
    if (gid_index_ || !selects_gid_) {
        return gid_index_;
    }
    for (const rdmabuf::GidEntry& entry : context.gid_table(port)) {
        const auto in_range = [&](unsigned bit) {
            return ((entry.gid.bytes.at(bit / 8) ^ gid_range_.at(bit / 8)) >> (7 - bit % 8) & 1) ==
                   0;
        };
        unsigned bit = ipv6_gid_ ? 0 : 96;
        while (bit < gid_prefix_ && in_range(bit)) {
            ++bit;
        }
        if (entry.type == gid_type_ && entry.gid.is_ipv4_mapped() != ipv6_gid_ &&
            !entry.gid.is_link_local() && bit >= gid_prefix_) {
            return entry.index;
        }
    }
    return std::nullopt;
}

} // namespace nccl_net

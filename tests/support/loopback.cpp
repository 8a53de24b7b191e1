// SPDX-License-Identifier: BSD-3-Clause
#include "loopback.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <rdmabuf/detail/config.hpp>
#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/providers/verbs_dm.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/resolver.hpp>

#include "waiting.hpp"

namespace rdmabuf::testing {
namespace {

class HostMemory : public Memory {
  public:
    HostMemory(const ProtectionDomain& pd, std::size_t length, Access access)
        : bytes_(length), region_(pd, bytes_.data(), length, {.access = access}) {}

    [[nodiscard]] const Region& region() const override { return region_; }
    void put(std::size_t offset, std::span<const std::byte> bytes) override {
        std::copy(bytes.begin(), bytes.end(), std::span(bytes_).subspan(offset).begin());
    }
    std::vector<std::byte> get(std::size_t offset, std::size_t length) override {
        const auto part = std::span(bytes_).subspan(offset, length);
        return {part.begin(), part.end()};
    }

  private:
    std::vector<std::byte> bytes_;
    MemoryRegion region_;
};

Resolver exporters([[maybe_unused]] const std::string& wanted,
                   [[maybe_unused]] const Context& context) {
#if RDMABUF_HAVE_PROVIDER_MEMFD
    if (wanted == "memfd") { // Resolver::system() has no memfd exporter.
        return Resolver({make_memfd_exporter()});
    }
#endif
#if RDMABUF_HAVE_PROVIDER_VERBS_DM
    if (wanted == "verbs_dm") { // This exporter belongs to one device.
        return Resolver({make_verbs_dm_exporter(context)});
    }
#endif
    return Resolver::system();
}

/// A range of a buffer, which begins inside a page at a multiple of 8, as atomics require.
class DmaBufMemory : public Memory {
  public:
    DmaBufMemory(const std::string& exporter, const ProtectionDomain& pd, std::size_t length,
                 Access access)
        : resolver_(exporters(exporter, pd.context())),
          start_(page_size() + 72),
          buffer_(resolver_.allocator(exporter)->allocate(start_ + length)),
          region_(pd, resolver_.export_range(buffer_.address() + start_, length),
                  {.access = access}) {}

    [[nodiscard]] const Region& region() const override { return region_; }
    void put(std::size_t offset, std::span<const std::byte> bytes) override {
        buffer_.copy_in(start_ + offset, bytes);
    }
    std::vector<std::byte> get(std::size_t offset, std::size_t length) override {
        std::vector<std::byte> bytes(length);
        buffer_.copy_out(start_ + offset, bytes);
        return bytes;
    }

  private:
    Resolver resolver_;
    std::size_t start_;
    Buffer buffer_;
    DmaBufMR region_;
};

class NicMemory : public Memory {
  public:
    NicMemory(const ProtectionDomain& pd, std::size_t length, Access access)
        : memory_(pd.context(), length), region_(pd, memory_, {.access = access}) {}

    [[nodiscard]] const Region& region() const override { return region_; }
    void put(std::size_t offset, std::span<const std::byte> bytes) override {
        memory_.copy_in(offset, bytes);
    }
    std::vector<std::byte> get(std::size_t offset, std::size_t length) override {
        std::vector<std::byte> bytes(length);
        memory_.copy_out(offset, bytes);
        return bytes;
    }

  private:
    DeviceMemory memory_;
    DeviceMemoryMR region_;
};

} // namespace

WorkCompletion End::next() const {
    WorkCompletion completion{};
    if (cq.wait({&completion, 1}, time_limit) == 0) {
        throw std::runtime_error("no completion came");
    }
    return completion;
}

WorkCompletion End::expect(std::uint64_t wr_id) const {
    const WorkCompletion completion = next();
    EXPECT_TRUE(succeeded(completion)) << describe(completion);
    EXPECT_EQ(completion.wr_id, wr_id);
    EXPECT_EQ(completion.qp_num, qp->number());
    return completion;
}

PreparedQueuePair Loopback::prepare(const End& end, QueuePairType type, Adjust adjust) const {
    QueuePairOptions options{.send_cq = end.cq, .recv_cq = end.cq, .type = type};
    if (adjust != nullptr) {
        adjust(options);
    }
    return QueuePair::prepare(end.pd, options);
}

void Loopback::connect(QueuePairType type, Adjust adjust) {
    PreparedQueuePair prepared_a = prepare(a, type, adjust);
    PreparedQueuePair prepared_b = prepare(b, type, adjust);
    const QueuePairAddress address_a = prepared_a.address();
    const QueuePairAddress address_b = prepared_b.address();
    a.qp.emplace(std::move(prepared_a).connect(address_b));
    b.qp.emplace(std::move(prepared_b).connect(address_a));
}

std::unique_ptr<Memory> make_memory(const std::string& kind, const ProtectionDomain& pd,
                                    std::size_t length, Access access) {
    if (kind == "host") {
        return std::make_unique<HostMemory>(pd, length, access);
    }
    if (kind == "dm") {
        return std::make_unique<NicMemory>(pd, length, access);
    }
    return std::make_unique<DmaBufMemory>(kind, pd, length, access);
}

} // namespace rdmabuf::testing

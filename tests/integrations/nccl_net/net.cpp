// SPDX-License-Identifier: BSD-3-Clause
#include "net.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <gtest/gtest.h>

namespace nccl_net_test {
namespace {

std::mutex log_mutex;
std::string logged;

void log(abi::LogLevel level, unsigned long /*subsystems*/, const char* /*file*/, int /*line*/,
         const char* format, ...) {
    std::array<char, 4096> text{};
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text.data(), text.size(), format, arguments);
    va_end(arguments);
    const std::lock_guard lock(log_mutex);
    logged.append(level == abi::LogLevel::warn ? "W " : "I ").append(text.data()).append("\n");
}

/// The calls of one table. The functions that differ between the versions are called with the
/// parameters of the table.
template <class Table, class Properties, class Virtual>
class NetOf : public Net {
  public:
    explicit NetOf(const Table& table) : table_(table) {}

    Result init(int traffic_class) override {
        config_ = {.traffic_class = traffic_class};
        if constexpr (has_contexts) {
            contexts_.push_back(nullptr);
            return table_.init(&contexts_.back(), contexts_.size(), &config_, log, nullptr);
        } else if constexpr (std::is_same_v<Table, abi::NetV10>) {
            return table_.init(log, nullptr);
        } else {
            return table_.init(log);
        }
    }
    void finalize(bool still_used) override {
        if constexpr (has_contexts) {
            EXPECT_EQ(table_.later.finalize(contexts_.back()), Result::success);
            if (!still_used) {
                contexts_.pop_back();
            }
        }
    }
    int devices() override {
        int count = -1;
        return table_.devices(&count) == Result::success ? count : -1;
    }
    Result properties(int device, abi::PropertiesV12& properties) override {
        Properties reported{};
        const Result result = table_.get_properties(device, &reported);
        properties = {};
        properties.device = reported.device;
        properties.link = reported.link;
        properties.merged = {.count = 1, .devices = {device}};
        properties.max_message = properties.max_collective = std::size_t{1} << 30U;
        properties.later = {
            .max_multi_request = 1, .rail = abi::undefined_id, .plane = abi::undefined_id};
        if constexpr (requires { reported.merged; }) {
            properties.force_flush = reported.force_flush;
            properties.merged.count = reported.merged.count;
            std::ranges::copy(reported.merged.devices, properties.merged.devices.begin());
            properties.max_message = reported.max_message;
            properties.max_collective = reported.max_collective;
        }
        if constexpr (requires { reported.later.max_multi_request; }) {
            properties.later = reported.later;
        }
        return result;
    }
    Result merge(const std::vector<int>& devices, int& device) override {
        if constexpr (requires { table_.later.make_virtual_device; }) {
            Virtual wanted{.count = static_cast<int>(devices.size()), .devices = {}};
            std::copy_n(devices.begin(), std::min(devices.size(), Virtual::max),
                        wanted.devices.begin());
            return table_.later.make_virtual_device(&device, &wanted);
        } else {
            return Result::internal_error;
        }
    }
    Result listen(int device, Handle& handle, void*& listener) override {
        if constexpr (has_contexts) {
            return table_.listen(contexts_.back(), device, handle.data(), &listener);
        } else {
            return table_.listen(device, handle.data(), &listener);
        }
    }
    Result connect(int device, Handle& handle, void*& comm) override {
        // NCCL passes the address of a null pointer, unless the device does network operations in
        // GPU kernels.
        abi::DeviceHandle* offload = nullptr;
        Result result{};
        if constexpr (has_contexts) {
            result = table_.connect(contexts_.back(), device, handle.data(), &comm, &offload);
        } else if constexpr (std::is_same_v<Table, abi::NetV10>) {
            result = table_.connect(device, &config_, handle.data(), &comm, &offload);
        } else {
            result = table_.connect(device, handle.data(), &comm, &offload);
        }
        EXPECT_EQ(offload, nullptr);
        return result;
    }
    Result accept(void* listener, void*& comm) override {
        abi::DeviceHandle* offload = nullptr;
        const Result result = table_.functions.accept(listener, &comm, &offload);
        EXPECT_EQ(offload, nullptr);
        return result;
    }
    Result register_memory(void* comm, void* data, std::size_t size, int kind,
                           void*& memory) override {
        return table_.functions.register_memory(comm, data, size, kind, &memory);
    }
    Result register_dmabuf(void* comm, void* data, std::size_t size, std::uint64_t offset, int fd,
                           void*& memory) override {
        return table_.functions.register_dmabuf(comm, data, size, abi::pointer_cuda, offset, fd,
                                                &memory);
    }
    Result deregister_memory(void* comm, void* memory) override {
        return table_.functions.deregister_memory(comm, memory);
    }
    Result isend(void* comm, void* data, std::size_t size, int tag, void* memory,
                 void*& request) override {
        if constexpr (version_8) {
            return table_.functions.isend(comm, data, static_cast<int>(size), tag, memory,
                                          &request);
        } else {
            int profiled = 0;
            return table_.functions.isend(comm, data, size, tag, memory, &profiled, &request);
        }
    }
    Result irecv(void* comm, std::vector<void*> data, std::vector<std::size_t> sizes,
                 std::vector<int> tags, std::vector<void*> memories, void*& request) override {
        const auto count = static_cast<int>(data.size());
        if constexpr (version_8) {
            std::vector<int> lengths(sizes.begin(), sizes.end());
            return table_.functions.irecv(comm, count, data.data(), lengths.data(), tags.data(),
                                          memories.data(), &request);
        } else {
            // NCCL does this for a receive of one message whose completion it does not need.
            request =
                count == 1 ? reinterpret_cast<void*>(abi::optional_receive_completion) : nullptr;
            std::vector<void*> profiled(data.size());
            return table_.functions.irecv(comm, count, data.data(), sizes.data(), tags.data(),
                                          memories.data(), profiled.data(), &request);
        }
    }
    Result iflush(void* comm, std::vector<void*> data, std::vector<int> sizes,
                  std::vector<void*> memories, void*& request) override {
        return table_.functions.iflush(comm, static_cast<int>(data.size()), data.data(),
                                       sizes.data(), memories.data(), &request);
    }
    Result test(void* request, int& done, int* sizes) override {
        return table_.functions.test(request, &done, sizes);
    }
    Result close_send(void* comm) override { return table_.functions.close_send(comm); }
    Result close_receive(void* comm) override { return table_.functions.close_receive(comm); }
    Result close_listen(void* listener) override { return table_.functions.close_listen(listener); }

  private:
    static constexpr bool version_8 = std::is_same_v<Table, abi::NetV8>;
    static constexpr bool has_contexts = requires(Table table) { table.later.finalize; };

    const Table& table_;
    abi::Config config_{.traffic_class = abi::undefined_traffic_class};
    /// The contexts of the NCCL communicators. A deque, because init() keeps the address of an
    /// element.
    std::deque<void*> contexts_;
};

template <class Table, class Properties, class Virtual = abi::VirtualDeviceV10>
std::unique_ptr<Net> make_net(const void* table) {
    return std::make_unique<NetOf<Table, Properties, Virtual>>(*static_cast<const Table*>(table));
}

} // namespace

LoadedPlugin::LoadedPlugin(const std::string& path)
    : path_(path), handle_(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
        throw std::runtime_error(::dlerror()); // NOLINT(concurrency-mt-unsafe)
    }
}

LoadedPlugin::~LoadedPlugin() {
    unload();
}

bool LoadedPlugin::unload() noexcept {
    if (handle_ != nullptr) {
        ::dlclose(std::exchange(handle_, nullptr));
    }
    void* const left = ::dlopen(path_.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (left != nullptr) {
        ::dlclose(left);
    }
    return left == nullptr;
}

std::unique_ptr<Net> LoadedPlugin::net(int version) const {
    const std::string name = "ncclNetPlugin_v" + std::to_string(version);
    const void* const table = ::dlsym(handle_, name.c_str());
    if (table == nullptr) {
        throw std::runtime_error("no " + name);
    }
    switch (version) {
        case 8:
            return make_net<abi::NetV8, abi::PropertiesV8>(table);
        case 10:
            return make_net<abi::NetV10, abi::PropertiesV10>(table);
        case 11:
            return make_net<abi::NetV11, abi::PropertiesV11>(table);
        default:
            return make_net<abi::NetV12, abi::PropertiesV12, abi::VirtualDeviceV12>(table);
    }
}

RegisteredBuffer::RegisteredBuffer(Net& net, void* comm, std::size_t size, bool dmabuf)
    : net_(net), comm_(comm), size_(size), dmabuf_(dmabuf) {
    const int fd = dmabuf ? ::memfd_create("buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
    require(!dmabuf || ::ftruncate(fd, static_cast<off_t>(size)) == 0, "ftruncate");
    void* const mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                dmabuf ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
    require(mapped != MAP_FAILED, "mmap");
    data_ = static_cast<std::byte*>(mapped);
    const Result result = dmabuf
                              ? net.register_dmabuf(comm, data_, size, 0, fd, handle_)
                              : net.register_memory(comm, data_, size, abi::pointer_host, handle_);
    // NCCL also closes the descriptor after the call.
    require(!dmabuf || ::close(fd) == 0, "close");
    require(result == Result::success, "registration");
}

RegisteredBuffer::~RegisteredBuffer() {
    deregister();
    ::munmap(data_, size_);
}

void RegisteredBuffer::deregister() {
    if (handle_ != nullptr) {
        EXPECT_EQ(net_.deregister_memory(comm_, std::exchange(handle_, nullptr)), Result::success);
    }
}

void require(bool condition, const char* what) {
    if (!condition) {
        throw std::runtime_error(what + ("\n" + take_log()));
    }
}

std::string take_log() {
    const std::lock_guard lock(log_mutex);
    return std::exchange(logged, {});
}

} // namespace nccl_net_test

// SPDX-License-Identifier: BSD-3-Clause
#include "net.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <type_traits>
#include <utility>

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

/// What the two tables do in the same way.
template <class Table>
class NetOf : public Net {
  public:
    explicit NetOf(const Table& table) : table_(table) {}

    int devices() override {
        int count = -1;
        return table_.devices(&count) == Result::success ? count : -1;
    }
    Result accept(void* listener, void*& comm) override {
        return table_.accept(listener, &comm, nullptr);
    }
    Result register_memory(void* comm, void* data, std::size_t size, int kind,
                           void*& memory) override {
        return table_.register_memory(comm, data, size, kind, &memory);
    }
    Result register_dmabuf(void* comm, void* data, std::size_t size, std::uint64_t offset, int fd,
                           void*& memory) override {
        return table_.register_dmabuf(comm, data, size, abi::pointer_cuda, offset, fd, &memory);
    }
    Result deregister_memory(void* comm, void* memory) override {
        return table_.deregister_memory(comm, memory);
    }
    Result iflush(void* comm, std::vector<void*> data, std::vector<int> sizes,
                  std::vector<void*> memories, void*& request) override {
        return table_.iflush(comm, static_cast<int>(data.size()), data.data(), sizes.data(),
                             memories.data(), &request);
    }
    Result test(void* request, int& done, int* sizes) override {
        return table_.test(request, &done, sizes);
    }
    Result close_send(void* comm) override { return table_.close_send(comm); }
    Result close_receive(void* comm) override { return table_.close_receive(comm); }
    Result close_listen(void* listener) override { return table_.close_listen(listener); }

  protected:
    [[nodiscard]] const Table& table() const { return table_; }

  private:
    const Table& table_;
};

class NetV8 : public NetOf<abi::NetV8> {
  public:
    using NetOf::NetOf;

    Result init() override { return table().init(log); }
    void finalize() override {}
    Result properties(int device, abi::PropertiesV12& properties) override {
        abi::PropertiesV8 told{};
        const Result result = table().get_properties(device, &told);
        properties = {.name = told.name,
                      .pci_path = told.pci_path,
                      .guid = told.guid,
                      .pointers = told.pointers,
                      .global_memory = told.global_memory,
                      .force_flush = 0,
                      .speed = told.speed,
                      .port = told.port,
                      .latency = told.latency,
                      .max_comms = told.max_comms,
                      .max_receives = told.max_receives,
                      .device_type = told.device_type,
                      .device_version = told.device_version,
                      .merged = {.count = 1, .devices = {device}},
                      .max_message = std::size_t{1} << 30U,
                      .max_collective = std::size_t{1} << 30U,
                      .max_multi_request = 1,
                      .rail = abi::undefined_id,
                      .plane = abi::undefined_id};
        return result;
    }
    Result listen(int device, Handle& handle, void*& listener) override {
        return table().listen(device, handle.data(), &listener);
    }
    Result connect(int device, Handle& handle, void*& comm) override {
        return table().connect(device, handle.data(), &comm, nullptr);
    }
    Result isend(void* comm, void* data, std::size_t size, int tag, void* memory,
                 void*& request) override {
        return table().isend(comm, data, static_cast<int>(size), tag, memory, &request);
    }
    Result irecv(void* comm, std::vector<void*> data, std::vector<std::size_t> sizes,
                 std::vector<int> tags, std::vector<void*> memories, void*& request) override {
        std::vector<int> lengths(sizes.begin(), sizes.end());
        return table().irecv(comm, static_cast<int>(data.size()), data.data(), lengths.data(),
                             tags.data(), memories.data(), &request);
    }
};

class NetV12 : public NetOf<abi::NetV12> {
  public:
    using NetOf::NetOf;

    Result init() override {
        abi::ConfigV12 config{.traffic_class = abi::undefined_traffic_class};
        return table().init(&context_, 1, &config, log, nullptr);
    }
    void finalize() override { table().finalize(context_); }
    Result properties(int device, abi::PropertiesV12& properties) override {
        return table().get_properties(device, &properties);
    }
    Result listen(int device, Handle& handle, void*& listener) override {
        return table().listen(context_, device, handle.data(), &listener);
    }
    Result connect(int device, Handle& handle, void*& comm) override {
        return table().connect(context_, device, handle.data(), &comm, nullptr);
    }
    Result isend(void* comm, void* data, std::size_t size, int tag, void* memory,
                 void*& request) override {
        return table().isend(comm, data, size, tag, memory, nullptr, &request);
    }
    Result irecv(void* comm, std::vector<void*> data, std::vector<std::size_t> sizes,
                 std::vector<int> tags, std::vector<void*> memories, void*& request) override {
        std::vector<void*> profiled(data.size());
        // NCCL_NET_OPTIONAL_RECV_COMPLETION: NCCL may not wait for this one.
        request = data.size() == 1 ? reinterpret_cast<void*>(1) : nullptr;
        return table().irecv(comm, static_cast<int>(data.size()), data.data(), sizes.data(),
                             tags.data(), memories.data(), profiled.data(), &request);
    }

  private:
    void* context_ = nullptr;
};

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

void* LoadedPlugin::symbol(const char* name) const noexcept {
    return ::dlsym(handle_, name);
}

std::unique_ptr<Net> LoadedPlugin::net(int version) const {
    const std::string name = "ncclNetPlugin_v" + std::to_string(version);
    const void* const table = symbol(name.c_str());
    if (table == nullptr) {
        throw std::runtime_error("no " + name);
    }
    if (version == 8) {
        return std::make_unique<NetV8>(*static_cast<const abi::NetV8*>(table));
    }
    return std::make_unique<NetV12>(*static_cast<const abi::NetV12*>(table));
}

std::string take_log() {
    const std::lock_guard lock(log_mutex);
    return std::exchange(logged, {});
}

} // namespace nccl_net_test

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nccl_net_abi.hpp>

namespace nccl_net_test {

namespace abi = nccl_net::abi;
using abi::Result;

/// A listener's handle, in a buffer as large as NCCL's.
using Handle = std::array<std::byte, abi::handle_size>;

/// A table of the plugin, called as NCCL calls it. What has no counterpart in version 8 has in its
/// properties what NCCL takes for it.
class Net {
  public:
    virtual ~Net() = default;
    Net(const Net&) = delete;
    Net& operator=(const Net&) = delete;

    /// With a logger that keeps what it is told.
    virtual Result init() = 0;
    virtual void finalize() = 0;
    virtual int devices() = 0;
    virtual Result properties(int device, abi::PropertiesV12& properties) = 0;
    virtual Result listen(int device, Handle& handle, void*& listener) = 0;
    virtual Result connect(int device, Handle& handle, void*& comm) = 0;
    virtual Result accept(void* listener, void*& comm) = 0;
    virtual Result register_memory(void* comm, void* data, std::size_t size, int kind,
                                   void*& memory) = 0;
    virtual Result register_dmabuf(void* comm, void* data, std::size_t size, std::uint64_t offset,
                                   int fd, void*& memory) = 0;
    virtual Result deregister_memory(void* comm, void* memory) = 0;
    virtual Result isend(void* comm, void* data, std::size_t size, int tag, void* memory,
                         void*& request) = 0;
    virtual Result irecv(void* comm, std::vector<void*> data, std::vector<std::size_t> sizes,
                         std::vector<int> tags, std::vector<void*> memories, void*& request) = 0;
    virtual Result iflush(void* comm, std::vector<void*> data, std::vector<int> sizes,
                          std::vector<void*> memories, void*& request) = 0;
    virtual Result test(void* request, int& done, int* sizes) = 0;
    virtual Result close_send(void* comm) = 0;
    virtual Result close_receive(void* comm) = 0;
    virtual Result close_listen(void* listener) = 0;

  protected:
    Net() = default;
};

/// The library, loaded for as long as this lives.
class LoadedPlugin {
  public:
    /// @throws std::runtime_error what dlopen(3) says
    explicit LoadedPlugin(const std::string& path);
    ~LoadedPlugin();
    LoadedPlugin(const LoadedPlugin&) = delete;
    LoadedPlugin& operator=(const LoadedPlugin&) = delete;

    /// @param version  8 or 12. @throws std::runtime_error where it has no such table
    [[nodiscard]] std::unique_ptr<Net> net(int version) const;
    /// Where a symbol is, or nullptr.
    [[nodiscard]] void* symbol(const char* name) const noexcept;
    /// Unloads it. @return whether it is gone
    bool unload() noexcept;

  private:
    std::string path_;
    void* handle_;
};

/// What was logged since the last call, a message to a line: "W" or "I" for its level, a space, and
/// the text.
[[nodiscard]] std::string take_log();

} // namespace nccl_net_test

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nccl_net_abi.hpp>

namespace nccl_net_test {

namespace abi = nccl_net::abi;
using abi::Result;

/// The handle of a listener, in a buffer with the size of NCCL's buffer.
using Handle = std::array<std::byte, abi::handle_size>;

/// The newest version of the function table. The library has the versions 8 and 10 to 12.
inline constexpr int newest_version = 12;

/// A function table of the plugin, called as NCCL calls this version of the table. Properties that
/// a version does not have are set to the values that NCCL assumes.
class Net {
  public:
    virtual ~Net() = default;
    Net(const Net&) = delete;
    Net& operator=(const Net&) = delete;

    /// Initializes the plugin for an NCCL communicator. The messages of the plugin are kept for
    /// take_log(). Versions before 11 ignore a second call, because NCCL makes none.
    /// @param traffic_class  of the NCCL communicator; for versions from 10 on
    virtual Result init(int traffic_class = abi::undefined_traffic_class) = 0;
    /// Ends the NCCL communicator of the last init(). Versions before 11 have no such function.
    /// @param still_used  true: later calls still use this communicator, as NCCL 2.28.3 does for
    ///                    communicators that were split from it. Must be followed by another call.
    virtual void finalize(bool still_used = false) = 0;
    virtual int devices() = 0;
    virtual Result properties(int device, abi::PropertiesV12& properties) = 0;
    /// @param device  receives the number of the merged device
    virtual Result merge(const std::vector<int>& devices, int& device) = 0;
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

/// The loaded library; the destructor unloads it.
class LoadedPlugin {
  public:
    /// @throws std::runtime_error with the message of dlopen(3)
    explicit LoadedPlugin(const std::string& path);
    ~LoadedPlugin();
    LoadedPlugin(const LoadedPlugin&) = delete;
    LoadedPlugin& operator=(const LoadedPlugin&) = delete;

    /// @throws std::runtime_error if the library has no such table
    [[nodiscard]] std::unique_ptr<Net> net(int version) const;
    /// Unloads the library. @return true if it is no longer in memory
    bool unload() noexcept;

  private:
    std::string path_;
    void* handle_;
};

/// Memory of one of the two kinds that NCCL registers: host memory, or a dma-buf as of a GPU.
class RegisteredBuffer {
  public:
    /// @throws std::runtime_error if the memory cannot be registered
    RegisteredBuffer(Net& net, void* comm, std::size_t size, bool dmabuf);
    ~RegisteredBuffer();
    RegisteredBuffer(const RegisteredBuffer&) = delete;
    RegisteredBuffer& operator=(const RegisteredBuffer&) = delete;

    [[nodiscard]] bool dmabuf() const { return dmabuf_; }
    [[nodiscard]] void* handle() const { return handle_; }
    [[nodiscard]] std::byte* data(std::size_t offset = 0) const { return data_ + offset; }
    [[nodiscard]] std::span<std::byte> bytes(std::size_t offset, std::size_t count) const {
        return {data_ + offset, count};
    }
    /// Ends the registration before the end of the object.
    void deregister();

  private:
    Net& net_;
    void* comm_;
    std::size_t size_;
    bool dmabuf_;
    std::byte* data_ = nullptr;
    void* handle_ = nullptr;
};

/// @throws std::runtime_error with @p what and the messages of the plugin, if @p condition is false
void require(bool condition, const char* what);

/// Returns the messages that the plugin has logged since the last call, one message per line: "W"
/// or "I" for the level, a space, and the text.
[[nodiscard]] std::string take_log();

} // namespace nccl_net_test

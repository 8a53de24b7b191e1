// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <backend/backend_plugin.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rdmabuf::testing {

/// The plugin, as NIXL's plugin manager loads it.
[[nodiscard]] const nixlBackendPlugin& nixl_plugin();

/// What an agent sends to other agents: its name, its connection information, and its memory.
struct NixlMetadata {
    std::string agent;
    std::string connection;
    std::vector<nixlBlobDesc> memory;
};

/// One block of a transfer.
struct NixlBlock {
    const void* local = nullptr;
    const void* remote = nullptr;
    std::size_t length = 0;
};

/// An agent with one backend. The functions call the backend in the order in which the functions
/// of nixlAgent and of its memory sections do in NIXL 1.4.0, and have the same results.
class NixlCore {
  public:
    class Request {
      public:
        ~Request() {
            if (handle_ != nullptr) {
                static_cast<void>(engine_.releaseReqH(handle_));
            }
        }
        Request(const Request&) = delete;
        Request& operator=(const Request&) = delete;

        [[nodiscard]] nixlBackendReqH* handle() const { return handle_; }

      private:
        friend class NixlCore;
        explicit Request(nixlBackendEngine& engine) : engine_(engine) {}
        nixlBackendEngine& engine_;
        nixlBackendReqH* handle_ = nullptr;
        nixl_xfer_op_t operation_{};
        nixl_meta_dlist_t local_{DRAM_SEG};
        nixl_meta_dlist_t remote_{DRAM_SEG};
        std::string agent_;
        std::uint64_t generation_ = 0;
        nixl_status_t status_ = NIXL_ERR_NOT_POSTED;
    };
    using RequestPointer = std::unique_ptr<Request>;

    explicit NixlCore(std::string name) : name_(std::move(name)) {}
    ~NixlCore();
    NixlCore(const NixlCore&) = delete;
    NixlCore& operator=(const NixlCore&) = delete;

    [[nodiscard]] nixl_status_t create_backend(nixl_b_params_t parameters = {{"host", "127.0.0.1"}},
                                               bool progress_thread = false);
    [[nodiscard]] nixlBackendEngine& engine() { return *engine_; }

    [[nodiscard]] nixl_status_t register_memory(std::span<const std::uint8_t> memory,
                                                nixl_mem_t type = DRAM_SEG);
    void deregister_memory(const void* address);
    [[nodiscard]] NixlMetadata local_metadata() const;
    [[nodiscard]] nixl_status_t load_remote_metadata(const NixlMetadata& metadata);
    /// @param meanwhile  what happens in the backend's progress thread between the two steps
    nixl_status_t invalidate_remote_metadata(
        const std::string& agent, const std::function<void()>& meanwhile = [] {});

    /// @param request  set if the result is NIXL_SUCCESS
    [[nodiscard]] nixl_status_t create_request(nixl_xfer_op_t operation,
                                               const std::vector<NixlBlock>& blocks,
                                               const std::string& agent, RequestPointer& request);
    [[nodiscard]] nixl_status_t post(Request& request,
                                     std::optional<std::string> notification = std::nullopt);
    [[nodiscard]] nixl_status_t status(Request& request);
    /// Destroys the request, except with the result NIXL_ERR_REPOST_ACTIVE.
    [[nodiscard]] nixl_status_t release(RequestPointer& request);

    [[nodiscard]] notif_list_t notifications();

  private:
    struct Section {
        std::size_t length = 0;
        nixlBackendMD* local = nullptr;
        /// The metadata of the memory for transfers of which it is the target.
        nixlBackendMD* target = nullptr;
        std::string blob;
    };
    using Sections = std::map<std::uintptr_t, Section>;
    struct Remote {
        /// Differs when the metadata of an agent is loaded again after it was invalidated.
        std::uint64_t generation = 0;
        Sections sections;
    };

    void unload(const Sections& sections);
    [[nodiscard]] nixl_status_t load_remote_section(const std::string& agent,
                                                    const nixlBlobDesc& memory, Sections& sections);
    /// Evicts the remote agent for which the request was created if it is disconnected.
    nixl_status_t checked(Request& request);

    std::string name_;
    std::unique_ptr<nixlBackendEngine, void (*)(nixlBackendEngine*)> engine_{
        nullptr, nixl_plugin().destroy_engine};
    std::string connection_;
    Sections local_;
    std::map<std::string, Remote> remote_;
    std::uint64_t generations_ = 0;
    std::map<std::string, std::string> connections_;
};

} // namespace rdmabuf::testing

// SPDX-License-Identifier: BSD-3-Clause
// The backend "RDMABUF" of NIXL: translates the calls of NIXL's core into calls of Agent. NIXL
// loads libplugin_RDMABUF.so and calls nixl_plugin_init().
#include <backend/backend_engine.h>
#include <backend/backend_plugin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent.hpp"

namespace {

using nixl_rdmabuf::Agent;
using nixl_rdmabuf::Block;
using nixl_rdmabuf::Direction;
using nixl_rdmabuf::LocalMemory;
using nixl_rdmabuf::LostAgent;
using nixl_rdmabuf::NotFound;
using nixl_rdmabuf::RemotePointer;
using nixl_rdmabuf::Transfer;
using nixl_rdmabuf::TransferState;

/// NIXL's metadata (nixlBackendMD) for memory that this agent has registered.
class LocalMetadata final : public nixlBackendMD {
  public:
    explicit LocalMetadata(LocalMemory registered)
        : nixlBackendMD(true), memory(std::move(registered)) {}
    LocalMemory memory;
};

/// NIXL's metadata (nixlBackendMD) for memory that a remote agent has registered.
class RemoteMetadata final : public nixlBackendMD {
  public:
    explicit RemoteMetadata(RemotePointer loaded)
        : nixlBackendMD(false), buffer(std::move(loaded)) {}
    RemotePointer buffer;
};

class RequestHandle final : public nixlBackendReqH {
  public:
    explicit RequestHandle(std::unique_ptr<Transfer> prepared) : transfer(std::move(prepared)) {}
    std::unique_ptr<Transfer> transfer;
};

nixl_status_t log_error(const char* reason, nixl_status_t status) {
    NIXL_ERROR << "RDMABUF: " << reason;
    return status;
}

/// Calls @p call and returns its status. NIXL's core cannot catch exceptions, so an exception is
/// logged and converted to a status: @p failed, unless a more specific status exists.
template <class Call>
nixl_status_t status_of(const Call& call, nixl_status_t failed = NIXL_ERR_BACKEND) {
    try {
        return call();
    } catch (const NotFound& error) {
        return log_error(error.what(), NIXL_ERR_NOT_FOUND);
    } catch (const LostAgent& error) {
        return log_error(error.what(), NIXL_ERR_REMOTE_DISCONNECT);
    } catch (const std::exception& error) {
        return log_error(error.what(), failed);
    }
}

nixl_status_t status_of(TransferState state, const Transfer& transfer) {
    switch (state) {
        case TransferState::not_posted:
            return NIXL_ERR_NOT_POSTED;
        case TransferState::in_progress:
            return NIXL_IN_PROG;
        case TransferState::aborting:
            return NIXL_ERR_CANCELED;
        case TransferState::done:
            return NIXL_SUCCESS;
        case TransferState::disconnected:
            return log_error(transfer.reason().c_str(), NIXL_ERR_REMOTE_DISCONNECT);
        case TransferState::failed:
            break;
    }
    return log_error(transfer.reason().c_str(), NIXL_ERR_BACKEND);
}

std::string parameter(const nixlBackendInitParams& init, const char* name) {
    if (init.customParams == nullptr) {
        return {};
    }
    const auto found = init.customParams->find(name);
    return found == init.customParams->end() ? std::string() : found->second;
}

class RdmabufEngine final : public nixlBackendEngine {
  public:
    explicit RdmabufEngine(const nixlBackendInitParams* init) : nixlBackendEngine(init) {
        const nixl_status_t started = status_of([&] {
            agent_.emplace(localAgent, parameter(*init, "device"), parameter(*init, "host"));
            return NIXL_SUCCESS;
        });
        initErr = started != NIXL_SUCCESS;
        if (init->enableProgTh && !initErr) {
            const auto delay =
                std::chrono::microseconds(std::max<long>(static_cast<long>(init->pthrDelay), 1));
            progress_thread_ = std::thread([this, delay] {
                while (!stopping_) {
                    agent_->progress_and_sleep(delay);
                }
            });
        }
    }
    RdmabufEngine(const RdmabufEngine&) = delete;
    RdmabufEngine& operator=(const RdmabufEngine&) = delete;
    ~RdmabufEngine() override {
        stopping_ = true;
        if (progress_thread_.joinable()) {
            agent_->interrupt();
            progress_thread_.join();
        }
    }

    [[nodiscard]] bool supportsRemote() const override { return true; }
    [[nodiscard]] bool supportsLocal() const override { return true; }
    [[nodiscard]] bool supportsNotif() const override { return true; }
    [[nodiscard]] nixl_mem_list_t getSupportedMems() const override { return {DRAM_SEG, VRAM_SEG}; }

    nixl_status_t registerMem(const nixlBlobDesc& mem, const nixl_mem_t& type,
                              nixlBackendMD*& out) override {
        if (type != DRAM_SEG && type != VRAM_SEG) {
            return NIXL_ERR_NOT_SUPPORTED;
        }
        return status_of([&] {
            LocalMemory memory = agent_->register_memory(mem.addr, mem.len);
            if (type == VRAM_SEG && memory->host()) {
                return log_error("this is host memory, but NIXL calls it VRAM",
                                 NIXL_ERR_INVALID_PARAM);
            }
            out = new LocalMetadata(std::move(memory));
            return NIXL_SUCCESS;
        });
    }
    nixl_status_t deregisterMem(nixlBackendMD* metadata) override {
        delete static_cast<LocalMetadata*>(metadata);
        return NIXL_SUCCESS;
    }
    nixl_status_t getPublicData(const nixlBackendMD* metadata, std::string& out) const override {
        return status_of([&] {
            out = Agent::describe(static_cast<const LocalMetadata*>(metadata)->memory);
            return NIXL_SUCCESS;
        });
    }
    nixl_status_t loadRemoteMD(const nixlBlobDesc& input, const nixl_mem_t&,
                               const std::string& remote_agent, nixlBackendMD*& output) override {
        return status_of(
            [&] {
                output = new RemoteMetadata(
                    agent_->load_remote(remote_agent, input.addr, input.metaInfo));
                return NIXL_SUCCESS;
            },
            NIXL_ERR_MISMATCH);
    }
    nixl_status_t loadLocalMD(nixlBackendMD* input, nixlBackendMD*& output) override {
        return status_of([&] {
            output = new RemoteMetadata(
                Agent::load_local(static_cast<const LocalMetadata*>(input)->memory));
            return NIXL_SUCCESS;
        });
    }
    nixl_status_t unloadMD(nixlBackendMD* input) override {
        delete static_cast<RemoteMetadata*>(input);
        return NIXL_SUCCESS;
    }

    nixl_status_t getConnInfo(std::string& out) const override {
        out = agent_->connection_info();
        return NIXL_SUCCESS;
    }
    nixl_status_t loadRemoteConnInfo(const std::string& remote_agent,
                                     const std::string& info) override {
        return status_of(
            [&] {
                agent_->load_connection_info(remote_agent, info);
                return NIXL_SUCCESS;
            },
            NIXL_ERR_MISMATCH);
    }
    nixl_status_t connect(const std::string& remote_agent) override {
        return status_of([&] {
            agent_->connect(remote_agent);
            return NIXL_SUCCESS;
        });
    }
    nixl_status_t disconnect(const std::string& remote_agent) override {
        agent_->disconnect(remote_agent);
        return NIXL_SUCCESS;
    }

    nixl_status_t prepXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                           const nixl_meta_dlist_t& remote, const std::string& remote_agent,
                           nixlBackendReqH*& handle,
                           const nixl_opt_b_args_t* /*arguments*/) const override {
        if (local.descCount() != remote.descCount()) {
            return NIXL_ERR_INVALID_PARAM;
        }
        return status_of(
            [&] {
                std::vector<Block> blocks;
                const auto count = static_cast<std::size_t>(local.descCount());
                blocks.reserve(count);
                for (std::size_t i = 0; i < count; ++i) {
                    if (local[i].len != remote[i].len) {
                        return NIXL_ERR_INVALID_PARAM;
                    }
                    blocks.push_back(
                        {.local = static_cast<const LocalMetadata*>(local[i].metadataP)->memory,
                         .local_address = local[i].addr,
                         .remote = static_cast<const RemoteMetadata*>(remote[i].metadataP)->buffer,
                         .remote_address = remote[i].addr,
                         .length = local[i].len});
                }
                handle = new RequestHandle(
                    agent_->prepare(operation == NIXL_READ ? Direction::read : Direction::write,
                                    remote_agent, blocks));
                return NIXL_SUCCESS;
            },
            NIXL_ERR_INVALID_PARAM);
    }
    nixl_status_t postXfer(const nixl_xfer_op_t& /*operation*/, const nixl_meta_dlist_t& /*local*/,
                           const nixl_meta_dlist_t& /*remote*/, const std::string& /*remote_agent*/,
                           nixlBackendReqH*& handle,
                           const nixl_opt_b_args_t* arguments) const override {
        auto& transfer = *static_cast<RequestHandle*>(handle)->transfer;
        return status_of([&] {
            const bool posted =
                agent_->post(transfer, arguments != nullptr && arguments->hasNotif
                                           ? std::optional<std::string>(arguments->notifMsg)
                                           : std::nullopt);
            return posted ? status_of(agent_->check(transfer), transfer) : NIXL_ERR_REPOST_ACTIVE;
        });
    }
    nixl_status_t checkXfer(nixlBackendReqH* handle) const override {
        auto& transfer = *static_cast<RequestHandle*>(handle)->transfer;
        return status_of([&] { return status_of(agent_->check(transfer), transfer); });
    }
    nixl_status_t releaseReqH(nixlBackendReqH* handle) const override {
        return status_of([&] {
            if (!agent_->release(*static_cast<RequestHandle*>(handle)->transfer)) {
                return NIXL_ERR_REPOST_ACTIVE;
            }
            delete handle;
            return NIXL_SUCCESS;
        });
    }

    nixl_status_t getNotifs(notif_list_t& list) override {
        if (!list.empty()) {
            return NIXL_ERR_INVALID_PARAM;
        }
        return status_of([&] {
            list = agent_->take_notifications();
            return NIXL_SUCCESS;
        });
    }
    nixl_status_t genNotif(const std::string& remote_agent,
                           const std::string& message) const override {
        return status_of([&] {
            agent_->notify(remote_agent, message);
            return NIXL_SUCCESS;
        });
    }

  private:
    // This member is mutable, because NIXL declares the functions that post and check transfers as
    // const.
    mutable std::optional<Agent> agent_;
    std::atomic<bool> stopping_{false};
    std::thread progress_thread_;
};

nixlBackendEngine* create_engine(const nixlBackendInitParams* init) {
    try {
        return new RdmabufEngine(init);
    } catch (const std::exception& error) {
        static_cast<void>(log_error(error.what(), NIXL_ERR_BACKEND));
        return nullptr;
    }
}
void destroy_engine(nixlBackendEngine* engine) {
    delete engine;
}
const char* plugin_name() {
    return "RDMABUF";
}
const char* plugin_version() {
    return RDMABUF_NIXL_VERSION;
}
/// Returns the parameters of the backend: the RDMA device (empty: Context::open_first()), and the
/// address or interface at which the agent listens.
nixl_b_params_t backend_options() {
    return {{"device", ""}, {"host", ""}};
}
nixl_mem_list_t backend_memory() {
    return {DRAM_SEG, VRAM_SEG};
}

} // namespace

extern "C" NIXL_PLUGIN_EXPORT nixlBackendPlugin* nixl_plugin_init() {
    static nixlBackendPlugin plugin = {
        NIXL_PLUGIN_API_VERSION, create_engine,   destroy_engine, plugin_name,
        plugin_version,          backend_options, backend_memory};
    return &plugin;
}
extern "C" NIXL_PLUGIN_EXPORT void nixl_plugin_fini() {}

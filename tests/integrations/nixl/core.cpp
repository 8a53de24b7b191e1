// SPDX-License-Identifier: BSD-3-Clause
#include "core.hpp"

#include <dlfcn.h>

#include <iterator>

#include <gtest/gtest.h>

namespace rdmabuf::testing {

const nixlBackendPlugin& nixl_plugin() {
    static const nixlBackendPlugin* const loaded = [] {
        void* const library = ::dlopen(NIXL_PLUGIN_PATH, RTLD_NOW | RTLD_LOCAL);
        EXPECT_NE(library, nullptr) << ::dlerror();
        const auto init =
            reinterpret_cast<nixlBackendPlugin* (*)()>(::dlsym(library, "nixl_plugin_init"));
        EXPECT_NE(init, nullptr);
        return init();
    }();
    return *loaded;
}

NixlCore::~NixlCore() {
    while (!local_.empty()) {
        EXPECT_EQ(engine_->deregisterMem(local_.begin()->second.local), NIXL_SUCCESS);
        remote_[name_].sections.insert(*local_.begin());
        local_.erase(local_.begin());
    }
    for (const auto& [agent, remote] : remote_) {
        unload(remote.sections);
    }
}

void NixlCore::unload(const Sections& sections) {
    for (const auto& [address, section] : sections) {
        EXPECT_EQ(engine_->unloadMD(section.target), NIXL_SUCCESS);
    }
}

nixl_status_t NixlCore::create_backend(nixl_b_params_t parameters, bool progress_thread) {
    nixlBackendInitParams init;
    init.localAgent = name_;
    init.type = "RDMABUF";
    init.customParams = &parameters;
    init.enableProgTh = progress_thread;
    init.pthrDelay = 1;
    engine_.reset(nixl_plugin().create_engine(&init));
    if (engine_ == nullptr || engine_->getInitErr()) {
        return NIXL_ERR_BACKEND;
    }
    const nixl_status_t status = engine_->getConnInfo(connection_);
    return status == NIXL_SUCCESS ? engine_->connect(name_) : status;
}

nixl_status_t NixlCore::register_memory(std::span<const std::uint8_t> memory, nixl_mem_t type) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    Section section;
    section.length = memory.size();
    const nixl_status_t status =
        engine_->registerMem({address, memory.size(), 0, ""}, type, section.local);
    if (status != NIXL_SUCCESS) {
        return status;
    }
    EXPECT_EQ(engine_->loadLocalMD(section.local, section.target), NIXL_SUCCESS);
    EXPECT_EQ(engine_->getPublicData(section.local, section.blob), NIXL_SUCCESS);
    local_[address] = section;
    return NIXL_SUCCESS;
}

void NixlCore::deregister_memory(const void* address) {
    const auto section = local_.extract(reinterpret_cast<std::uintptr_t>(address)).mapped();
    EXPECT_EQ(engine_->unloadMD(section.target), NIXL_SUCCESS);
    EXPECT_EQ(engine_->deregisterMem(section.local), NIXL_SUCCESS);
}

NixlMetadata NixlCore::local_metadata() const {
    NixlMetadata metadata{.agent = name_, .connection = connection_, .memory = {}};
    for (const auto& [address, section] : local_) {
        metadata.memory.emplace_back(address, section.length, 0, section.blob);
    }
    return metadata;
}

nixl_status_t NixlCore::load_remote_metadata(const NixlMetadata& metadata) {
    // A partial metadata has no connection information.
    if (const auto known = connections_.find(metadata.agent);
        known != connections_.end() && !metadata.connection.empty()) {
        if (known->second != metadata.connection) {
            return NIXL_ERR_NOT_ALLOWED;
        }
    } else if (!metadata.connection.empty()) {
        const nixl_status_t status =
            engine_->loadRemoteConnInfo(metadata.agent, metadata.connection);
        if (status != NIXL_SUCCESS) {
            return status;
        }
        connections_[metadata.agent] = metadata.connection;
    }
    const auto [remote, is_new] = remote_.try_emplace(metadata.agent);
    if (is_new) {
        remote->second.generation = ++generations_;
    }
    for (const nixlBlobDesc& memory : metadata.memory) {
        const nixl_status_t status =
            load_remote_section(metadata.agent, memory, remote->second.sections);
        if (status != NIXL_SUCCESS) {
            unload(remote->second.sections);
            remote_.erase(remote);
            connections_.erase(metadata.agent);
            return status;
        }
    }
    return NIXL_SUCCESS;
}

nixl_status_t NixlCore::load_remote_section(const std::string& agent, const nixlBlobDesc& memory,
                                            Sections& sections) {
    if (const auto known = sections.find(memory.addr); known != sections.end()) {
        return known->second.blob == memory.metaInfo ? NIXL_SUCCESS : NIXL_ERR_NOT_ALLOWED;
    }
    Section section{.length = memory.len, .blob = memory.metaInfo};
    const nixl_status_t status = engine_->loadRemoteMD(memory, DRAM_SEG, agent, section.target);
    if (status == NIXL_SUCCESS) {
        sections[memory.addr] = section;
    }
    return status;
}

nixl_status_t NixlCore::invalidate_remote_metadata(const std::string& agent,
                                                   const std::function<void()>& meanwhile) {
    const auto remote = remote_.extract(agent);
    if (remote) {
        unload(remote.mapped().sections);
    }
    meanwhile();
    if (connections_.erase(agent) == 0) {
        return remote ? NIXL_SUCCESS : NIXL_ERR_NOT_FOUND;
    }
    EXPECT_EQ(engine_->disconnect(agent), NIXL_SUCCESS);
    return NIXL_SUCCESS;
}

nixl_status_t NixlCore::create_request(nixl_xfer_op_t operation,
                                       const std::vector<NixlBlock>& blocks,
                                       const std::string& agent, RequestPointer& request) {
    RequestPointer made(new Request(*engine_));
    made->operation_ = operation;
    made->agent_ = agent;
    const auto add = [](const Sections& sections, const void* first, std::size_t length,
                        nixlBackendMD* Section::*metadata, nixl_meta_dlist_t& list) {
        const auto address = reinterpret_cast<std::uintptr_t>(first);
        const auto& section = std::prev(sections.upper_bound(address))->second;
        list.addDesc({address, length, 0, section.*metadata});
    };
    if (agent != name_) {
        made->generation_ = remote_.at(agent).generation;
    }
    const Sections& targets = agent == name_ ? local_ : remote_.at(agent).sections;
    for (const NixlBlock& block : blocks) {
        add(local_, block.local, block.length, &Section::local, made->local_);
        add(targets, block.remote, block.length, &Section::target, made->remote_);
    }
    const nixl_status_t status =
        engine_->prepXfer(operation, made->local_, made->remote_, agent, made->handle_);
    if (status == NIXL_SUCCESS) {
        request = std::move(made);
    }
    return status;
}

nixl_status_t NixlCore::checked(Request& request) {
    const auto remote = remote_.find(request.agent_);
    if (request.status_ == NIXL_ERR_REMOTE_DISCONNECT && remote != remote_.end() &&
        remote->second.generation == request.generation_) {
        static_cast<void>(invalidate_remote_metadata(request.agent_));
    }
    return request.status_;
}

nixl_status_t NixlCore::post(Request& request, std::optional<std::string> notification) {
    if (request.agent_ != name_ && !remote_.contains(request.agent_)) {
        return NIXL_ERR_NOT_FOUND;
    }
    if (request.status_ == NIXL_IN_PROG) {
        const nixl_status_t before = status(request);
        if (before == NIXL_IN_PROG || before == NIXL_ERR_REMOTE_DISCONNECT) {
            return before == NIXL_IN_PROG ? NIXL_ERR_REPOST_ACTIVE : before;
        }
    }
    nixl_opt_b_args_t arguments;
    arguments.hasNotif = notification.has_value();
    arguments.notifMsg = std::move(notification).value_or("");
    request.status_ = engine_->postXfer(request.operation_, request.local_, request.remote_,
                                        request.agent_, request.handle_, &arguments);
    return checked(request);
}

nixl_status_t NixlCore::status(Request& request) {
    if (request.status_ != NIXL_IN_PROG) {
        return request.status_;
    }
    if (request.agent_ != name_ && !remote_.contains(request.agent_)) {
        return NIXL_ERR_NOT_FOUND;
    }
    request.status_ = engine_->checkXfer(request.handle_);
    return checked(request);
}

nixl_status_t NixlCore::release(RequestPointer& request) {
    if (request->status_ == NIXL_IN_PROG) {
        request->status_ = engine_->checkXfer(request->handle_);
        if (request->status_ == NIXL_IN_PROG) {
            request->status_ = engine_->releaseReqH(request->handle_);
            if (request->status_ < 0) {
                return NIXL_ERR_REPOST_ACTIVE;
            }
            request->handle_ = nullptr;
        }
    }
    request.reset(); // Releases the handle, and ignores the result.
    return NIXL_SUCCESS;
}

notif_list_t NixlCore::notifications() {
    notif_list_t list;
    EXPECT_EQ(engine_->getNotifs(list), NIXL_SUCCESS);
    return list;
}

} // namespace rdmabuf::testing

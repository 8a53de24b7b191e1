// SPDX-License-Identifier: BSD-3-Clause
// Creates and destroys event channels (the open files of /dev/infiniband/rdma_cm) and rdma_cm ids,
// and queues the events of the ids.
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "cm/channel_file.hpp"
#include "cm/manager.hpp"

namespace softverbs::cm {

int Manager::open_file(int flags, ChannelFile*& file) {
    auto made = std::make_unique<ChannelFile>();
    files_.reserve(files_.size() + 1);
    if (const int error = made->open(flags); error != 0) {
        return error;
    }
    files_.push_back(std::move(made));
    epoll_event event{}; // events is 0: epoll(7) always reports EPOLLHUP.
    event.data.ptr = files_.back().get();
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, files_.back()->signal_end.get(), &event) != 0) {
        const int error = errno;
        ::close(files_.back()->descriptors.front());
        files_.pop_back();
        return error;
    }
    file = files_.back().get();
    return 0;
}

void Manager::close_file(ChannelFile& file) {
    for (bool found = true; found;) {
        // If an id listens, destroy_id() also destroys the ids of its connection requests, which
        // are in ids_ too. Therefore search ids_ from the start after each call.
        const auto id = std::ranges::find_if(
            ids_, [&file](const auto& each) { return each.second->file == &file; });
        found = id != ids_.end();
        if (found) {
            destroy_id(*id->second);
        }
    }
    std::erase_if(files_, [&file](const auto& each) { return each.get() == &file; });
}

Id* Manager::add_id(ChannelFile& file, std::uint16_t port_space, ibv_qp_type qp_type) {
    auto made = std::make_unique<Id>();
    while (ids_.contains(next_handle_) || next_handle_ + 1 == 0) { // see Id::communication_id
        ++next_handle_;
    }
    made->handle = next_handle_++;
    made->file = &file;
    made->port_space = port_space;
    made->qp_type = qp_type;
    Id* const id = made.get();
    ids_[id->handle] = std::move(made);
    return id;
}

Id* Manager::create_id(ChannelFile& file, std::uint64_t uid, std::uint16_t port_space,
                       ibv_qp_type qp_type) {
    Id* const id = add_id(file, port_space, qp_type);
    id->uid = uid;
    return id;
}

Id* Manager::find_id(const ChannelFile& file, std::uint32_t handle) const {
    const auto found = ids_.find(handle);
    if (found == ids_.end()) {
        errno = ENOENT;
        return nullptr;
    }
    if (found->second->file != &file) {
        errno = EINVAL;
        return nullptr;
    }
    return found->second.get();
}

unsigned Manager::destroy_id(Id& id) {
    if (id.listener != nullptr) {
        ++id.listener->backlog;
    }
    // Also destroy the ids of connection requests to this id that the program has not received yet.
    std::vector<Id*> requests;
    id.file->remove([&](const Event& event) {
        if (event.owner == &id && event.request != nullptr) {
            requests.push_back(event.request);
        }
        return event.owner == &id || event.request == &id;
    });
    for (Id* const request : requests) {
        request->listener = nullptr;
        destroy_id(*request);
    }
    withdraw(id);
    release_binding(id);
    clear_deadline(id);
    forget_communication_id(id);
    const unsigned reported = id.events_reported;
    ids_.erase(id.handle);
    return reported;
}

void Manager::release_binding(Id& id) {
    if (id.binding) {
        registry_.release(*id.binding);
        id.binding.reset();
    }
}

void Manager::migrate_id(Id& id, ChannelFile& file) {
    std::vector<Event> moved;
    id.file->remove([&](const Event& event) {
        if (event.owner == &id) {
            moved.push_back(event);
        }
        return event.owner == &id;
    });
    for (const Event& event : moved) {
        if (event.request != nullptr) {
            event.request->file = &file;
        }
        file.push(event);
    }
    id.file = &file;
}

Multicast* Manager::find_group(const ChannelFile& file, std::uint32_t handle, Id*& owner) {
    for (const auto& [number, id] : ids_) {
        for (Multicast& group : id->groups) {
            if (group.handle == handle) {
                owner = id.get();
                errno = EINVAL;
                return id->file == &file ? &group : nullptr;
            }
        }
    }
    errno = ENOENT;
    return nullptr;
}

void Manager::raise(Id& id, EventType type, int status) {
    raise(id, make_event(type, status));
}

void Manager::raise(Id& id, const Event& event) {
    if (id.uid == 0 && event.request == nullptr) {
        return;
    }
    Event made = event;
    made.owner = &id;
    if (made.multicast != nullptr) {
        made.response.uid = made.multicast->uid;
        made.response.id = made.multicast->handle;
    } else {
        made.response.uid = id.uid;
        made.response.id = made.request != nullptr ? made.request->handle : id.handle;
    }
    id.file->push(made);
}

void Manager::device_removed(unsigned device) {
    for (const auto& [handle, id] : ids_) {
        if (id->route.has_device() && id->route.device == device) {
            raise(*id, EventType::device_removal);
        }
    }
}

} // namespace softverbs::cm

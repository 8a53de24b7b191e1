// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "standin.hpp"

/// What the parts of the stand-in share.
namespace standin {

/// A device as ibv_get_device_list() gives it out.
struct ListedDevice : ibv_device {
    Device spec;
    /// Lists and contexts that keep it alive.
    unsigned holders = 0;
};

struct List {
    List() = default;
    ~List();
    List(const List&) = delete;
    List& operator=(const List&) = delete;
    std::vector<ListedDevice*> devices;
    std::vector<ibv_device*> natives;
};

/// Both ends of a pipe.
struct Pipe {
    Pipe();
    ~Pipe();
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    int read_end = -1;
    int write_end = -1;
};

struct Context : verbs_context {
    Context() = default;
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    Pipe events;
    ListedDevice* listed = nullptr;
};
struct Channel : ibv_comp_channel {
    Pipe events;
};
struct Cq : ibv_cq {
    std::deque<ibv_wc> completions;
    std::vector<ibv_wc> before_request;
    bool broken = false;
    bool armed = false;
    int unacknowledged = 0;
};
struct Srq : ibv_srq {
    std::uint32_t capacity = 0;
    std::uint32_t posted = 0;
};
struct Dm : ibv_dm {
    std::vector<std::uint8_t> bytes;
};
struct Qp : ibv_qp_ex {
    ibv_qp_init_attr_ex attributes{};
    /// Posted so far: what completes makes no room, which keeps filling a queue simple.
    std::uint32_t sends = 0;
    std::uint32_t receives = 0;
    std::vector<Send> batch;
};

/// A live object: it is freed with its entry.
struct Object {
    Kind kind;
    std::vector<const void*> parents;
    unsigned users = 0;
    std::shared_ptr<void> memory;
};

struct PlannedFailure {
    /// Empty for any call.
    std::string function;
    /// Fails when it comes down to 0.
    unsigned left;
    int error;
};

struct State {
    std::recursive_mutex mutex;
    std::vector<std::unique_ptr<ListedDevice>> devices;
    std::map<const void*, Object> objects;
    std::vector<std::string> destroyed;
    std::vector<std::string> violations;
    std::vector<PlannedFailure> failures;
    Record record;
    int unacknowledged = 0;
    std::uint32_t last_number = 0;
    unsigned posting_calls = 0;

    /// 0, or the errno that the call of @p function is to fail with.
    int enter(const char* function);
    /// Makes a zeroed object that uses @p parents.
    template <class T>
    T* make(Kind kind, std::vector<const void*> parents) {
        auto memory = std::make_shared<T>();
        T* const object = memory.get();
        for (const void* const parent : parents) {
            ++objects.at(parent).users;
        }
        // Verbs passes the C base around, which has the address of the whole.
        objects.emplace(address_of(object), Object{kind, std::move(parents), 0, std::move(memory)});
        return object;
    }
    /// 0, or the errno the call of @p function ends with: nothing that is in use goes.
    int destroy(const void* native, Kind kind, const char* function);
    void violation(const char* function, const std::string& what);
    std::uint32_t next_number() { return ++last_number; }

  private:
    template <class T>
    static const void* address_of(T* object) {
        return object;
    }
    static const void* address_of(Context* object) { return &object->context; }
    static const void* address_of(List* object) { return object; }
};

[[nodiscard]] State& state();
[[nodiscard]] std::unique_lock<std::recursive_mutex> lock();
[[nodiscard]] const Device& device_of(const ibv_context* context);

/// For calls that return null and set errno.
[[nodiscard]] inline std::nullptr_t fail(int error) {
    errno = error;
    return nullptr;
}

/// Fills in what queues and queue pairs do through the context.
void set_queue_operations(ibv_context_ops& ops);
void set_queue_pair_operations(Context& context);
void set_memory_operations(Context& context);

} // namespace standin

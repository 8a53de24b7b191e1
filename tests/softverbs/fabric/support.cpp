// SPDX-License-Identifier: BSD-3-Clause
#include "support.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <system_error>

namespace softverbs::fabric::testing {

std::vector<std::string> NodeDirectory::names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
        names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
}

NodeOptions NodeDirectory::options() const {
    NodeOptions options;
    options.directory = path();
    options.slots = 64;
    options.ring_bytes[0] = 16384;
    options.ring_bytes[1] = 8192;
    return options;
}

bool Recorder::on_request(Connection& connection, std::span<const std::byte> record) {
    if (refusals != 0) {
        --refusals;
        return false;
    }
    from = &connection;
    requests.push_back(text_of(record));
    return true;
}

void Recorder::on_response(Connection& /*from*/, std::span<const std::byte> record) {
    responses.push_back(text_of(record));
}

void Recorder::on_room(Connection& /*to*/) {
    ++rooms;
}

void Recorder::on_closed(Connection& /*connection*/) {
    ++gone;
}

void Recorder::on_shared(Connection& /*to*/, std::uint32_t share, int error) {
    shared.emplace_back(share, error);
}

void Peer::turn() {
    node->service(seen);
    node->progress(seen, 64);
}

Sent send(Connection& to, Lane lane, std::string_view text) {
    const std::span<const std::byte> part = std::as_bytes(std::span(text));
    return to.send(lane, {&part, 1});
}

std::string text_of(std::span<const std::byte> record) {
    return {reinterpret_cast<const char*>(record.data()), record.size()};
}

bool turn_until(std::initializer_list<Peer*> peers, const std::function<bool()>& done) {
    return eventually(done, [&peers] { std::ranges::for_each(peers, &Peer::turn); });
}

Connected::Connected(const NodeOptions& options) : Connected(options, options) {}

Connected::Connected(const NodeOptions& first, const NodeOptions& second)
    : a(first), b(second), there(a.node->connect(b.node->slot())) {
    if (there == nullptr) {
        throw std::system_error(errno, std::system_category(), "connect");
    }
    const bool sent = send(*there, Lane::requests, "hello") == Sent::sent;
    if (!sent || !turn_until([this] { return !b.seen.requests.empty(); })) {
        throw std::runtime_error("no connection");
    }
    back = b.seen.from;
    if (!turn_until([this] {
            return there->pull_method() != PullMethod::unknown &&
                   back->pull_method() != PullMethod::unknown;
        })) {
        throw std::runtime_error("no welcome");
    }
    b.seen.requests.clear();
}

std::size_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

Child::Child(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ == 0) {
        int status = 111;
        try {
            status = body();
        } catch (const std::exception& error) {
            ::fprintf(stderr, "in a child: %s\n", error.what());
        }
        ::_exit(status);
    }
    if (pid_ < 0) {
        throw std::system_error(errno, std::system_category(), "fork");
    }
}

Child::~Child() {
    kill();
}

void Child::kill() {
    if (pid_ > 0) {
        ::kill(pid_, SIGKILL);
        ::waitpid(std::exchange(pid_, -1), nullptr, 0);
    }
}

int Child::join() {
    int status = 0;
    if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) != 0; })) {
        return -1;
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Environment::Environment(const char* name, const char* value)
    : name_(name), was_set_(::getenv(name) != nullptr) {
    if (was_set_) {
        old_ = ::getenv(name);
    }
    ::setenv(name, value, 1);
}

Environment::~Environment() {
    if (was_set_) {
        ::setenv(name_, old_.c_str(), 1);
    } else {
        ::unsetenv(name_);
    }
}

} // namespace softverbs::fabric::testing

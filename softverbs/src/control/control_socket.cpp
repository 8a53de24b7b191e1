// SPDX-License-Identifier: BSD-3-Clause
#include "control/control_socket.hpp"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <softverbs/softverbs.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "control/text.hpp"
#include "fabric/rendezvous.hpp"
#include "fabric/report.hpp"
#include "fabric/spare_descriptor.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::control {

namespace {

using Clock = std::chrono::steady_clock;
using fabric::UniqueFd;

constexpr int command_timeout_ms = 1000;

/// A planned fault of a port or a device. @p changes_left is the number of state changes that have
/// not occurred yet. The next state change occurs at the time @p due.
struct Planned {
    DeviceFault fault;
    unsigned changes_left;
    Clock::time_point due;
    /// True if plan() has added the fault, and false if flap_port() has added it.
    bool from_list;
};

/// State of the control thread. It has its own lock. The lock cannot be Process::lock, because the
/// commands that the thread executes take Process::lock.
struct Control {
    std::mutex lock;
    bool started = false;
    pid_t owner = 0;
    UniqueFd listener;
    UniqueFd wake;
    /// The rendezvous directory, and the name of the socket in it.
    std::unique_ptr<fabric::Rendezvous> directory;
    std::string name;
    std::unique_ptr<fabric::SpareDescriptor> spare;
    std::vector<Planned> planned;
};

/// Never freed, because the control thread uses the object until the process ends.
Control& control() {
    static auto* const the_one = new Control;
    return *the_one;
}

std::string_view next_word(std::string_view& text) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return word;
}

std::string result_text(int error, const char* what) {
    return error == 0 ? "ok" : std::string(what) + ": " + std::strerror(error);
}

std::string execute_port(std::string_view arguments) {
    const auto device = parse_number(next_word(arguments));
    const auto port = parse_number(next_word(arguments));
    if (!device || !port || *port > 255) {
        return "the port command needs a device number, a port number and a state: port 0 1 down";
    }
    const auto number = static_cast<std::uint8_t>(*port);
    const auto change = parse_port_state(arguments);
    if (!change) {
        return "\"" + std::string(arguments) +
               "\" is not a state of a port; use up, down or flap:<period>ms*<times>";
    }
    if (change->kind == DeviceFault::Kind::flap) {
        return result_text(softverbs_flap_port(*device, number, change->period_ms, change->times),
                           "flap");
    }
    const bool up = change->kind == DeviceFault::Kind::port_up;
    return result_text(
        softverbs_set_port_state(*device, number, up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN), "port");
}

/// Executes the next state change of a fault. Does nothing if the device was removed after the
/// fault was planned.
void change_state(const Planned& planned) {
    const DeviceFault& fault = planned.fault;
    ibv_port_state state = IBV_PORT_DOWN;
    switch (fault.kind) {
        case DeviceFault::Kind::reset:
            softverbs_reset_device(fault.device);
            return;
        case DeviceFault::Kind::flap:
            // The first change takes the port down. Before this change, changes_left is even.
            state = planned.changes_left % 2 == 0 ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
            break;
        case DeviceFault::Kind::port_up:
            state = IBV_PORT_ACTIVE;
            break;
        case DeviceFault::Kind::port_down:
            break;
    }
    softverbs_set_port_state(fault.device, fault.port, state);
}

void serve_planned(Control& here) {
    std::vector<Planned> due;
    {
        const std::scoped_lock lock(here.lock);
        const auto now = Clock::now();
        for (Planned& planned : here.planned) {
            if (planned.due <= now && planned.changes_left != 0) {
                due.push_back(planned);
                --planned.changes_left;
                planned.due += std::chrono::milliseconds(planned.fault.period_ms);
            }
        }
        std::erase_if(here.planned,
                      [](const Planned& planned) { return planned.changes_left == 0; });
    }
    std::ranges::for_each(due, change_state);
}

/// Returns the time in milliseconds until the next planned state change, or -1 if none is planned.
int time_to_next_change(Control& here) {
    const std::scoped_lock lock(here.lock);
    if (here.planned.empty()) {
        return -1;
    }
    const auto next = std::ranges::min_element(here.planned, {}, &Planned::due)->due;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    return static_cast<int>(std::max<std::int64_t>(0, left.count()));
}

void serve_client(int listener, fabric::SpareDescriptor& spare) {
    const UniqueFd client(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!client) {
        static_cast<void>(spare.reject(listener));
        return;
    }
    if (!fabric::peer_process(client.get())) {
        return; // the client belongs to another user
    }
    // Read one message, which is the whole command. The time limit of poll() prevents a client that
    // sends nothing from blocking the control thread.
    pollfd readable{client.get(), POLLIN, 0};
    std::array<char, 4096> buffer{};
    const ssize_t size = ::poll(&readable, 1, command_timeout_ms) == 1
                             ? ::recv(client.get(), buffer.data(), buffer.size(), MSG_DONTWAIT)
                             : 0;
    if (size <= 0) {
        return;
    }
    const std::string reply =
        execute(std::string_view(buffer.data(), static_cast<std::size_t>(size)));
    static_cast<void>(
        ::send(client.get(), reply.data(), reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

void run(int listener, int wake) noexcept {
    Control& here = control();
    while (true) {
        std::array<pollfd, 2> descriptors{{{wake, POLLIN, 0}, {listener, POLLIN, 0}}};
        const int ready = ::poll(descriptors.data(), descriptors.size(), time_to_next_change(here));
        try {
            serve_planned(here);
            if (ready > 0 && descriptors[0].revents != 0) {
                std::uint64_t count = 0;
                static_cast<void>(::read(wake, &count, sizeof count));
            }
            if (ready > 0 && descriptors[1].revents != 0) {
                serve_client(listener, *here.spare);
            }
        } catch (const std::exception&) {
            // There is no memory, so the command was not executed. The connection is closed, and
            // the client receives an empty reply.
        }
    }
}

/// Returns whether the process whose PID is in the name of a socket file exists. Finds only
/// processes in the PID namespace of this process.
bool owner_exists(const std::filesystem::path& socket) {
    const std::string number = socket.stem();
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), pid);
    return error == std::errc() && pid > 0 && (::kill(pid, 0) == 0 || errno != ESRCH);
}

/// Removes the socket files in the rendezvous directory on which no process listens. They belonged
/// to processes that were killed. Does not connect to the sockets of processes that exist, because
/// this would wake these processes.
void remove_unused_sockets(const fabric::Rendezvous& directory) {
    std::error_code error;
    const std::string path = "/proc/self/fd/" + std::to_string(directory.fd());
    for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
         entry.increment(error)) {
        const std::string name = entry->path().filename();
        constexpr std::size_t longest_name = 32;
        if (!name.ends_with(".control") || name.size() > longest_name || owner_exists(name)) {
            continue;
        }
        socklen_t length = 0;
        const sockaddr_un address = directory.address(name.c_str(), length);
        const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (socket &&
            ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 &&
            errno == ECONNREFUSED) {
            ::unlinkat(directory.fd(), name.c_str(), 0);
        }
    }
}

UniqueFd listen_at(const fabric::Rendezvous& directory, const std::string& name) {
    // Listen under a temporary name, and then rename the socket file. Otherwise another process
    // could remove the file between bind() and listen(), in remove_unused_sockets().
    const std::string unfinished = name + ".new";
    socklen_t length = 0;
    const sockaddr_un address = directory.address(unfinished.c_str(), length);
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::unlinkat(directory.fd(), unfinished.c_str(), 0);
    if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        ::listen(socket.get(), 8) != 0 ||
        ::renameat(directory.fd(), unfinished.c_str(), directory.fd(), name.c_str()) != 0) {
        fabric::report("this process accepts no commands of softverbs fault and softverbs port: " +
                       directory.path() + "/" + name + ": " + std::strerror(errno));
        return {};
    }
    return socket;
}

/// Creates the socket and the control thread. The caller holds here.lock. The thread blocks all
/// signals, because they must be handled by threads of the program.
void start_thread(Control& here) {
    here.wake.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    here.directory = std::make_unique<fabric::Rendezvous>(fabric::default_directory());
    here.name = std::to_string(::getpid()) + ".control";
    remove_unused_sockets(*here.directory);
    here.spare = std::make_unique<fabric::SpareDescriptor>();
    here.listener = listen_at(*here.directory, here.name);
    here.owner = ::getpid();
    sigset_t all{};
    sigset_t before{};
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread thread(run, here.listener.get(), here.wake.get());
        ::pthread_setname_np(thread.native_handle(), "softverbs-ctl");
        thread.detach();
        here.started = true;
    } catch (const std::system_error&) {
        ::unlinkat(here.directory->fd(), here.name.c_str(), 0);
        here.listener.reset();
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

} // namespace

void start() noexcept {
    try {
        Control& here = control();
        const std::scoped_lock lock(here.lock);
        if (!here.started) {
            start_thread(here);
        }
    } catch (const std::exception&) {
        return; // without a usable directory, no command can arrive
    }
}

void stop() noexcept {
    const Control& here = control();
    if (here.started && here.owner == ::getpid()) {
        ::unlinkat(here.directory->fd(), here.name.c_str(), 0);
    }
}

void before_fork() noexcept {
    control().lock.lock();
}

void after_fork_in_parent() noexcept {
    control().lock.unlock();
}

void abandon() noexcept {
    Control& here = control();
    here.started = false;
    here.listener.reset();
    here.wake.reset();
    here.directory.reset();
    here.spare.reset();
    here.planned.clear();
    here.lock.unlock(); // before_fork() has locked it
}

namespace {

/// Starts the control thread if it does not exist, and adds faults to those that it executes.
/// Returns 0, ENOMEM, or EAGAIN if the thread cannot be created.
int add(std::span<const DeviceFault> faults, bool from_list) noexcept {
    start();
    try {
        Control& here = control();
        const std::scoped_lock lock(here.lock);
        if (!here.started) {
            return EAGAIN;
        }
        here.planned.reserve(here.planned.size() + faults.size());
        for (const DeviceFault& fault : faults) {
            const unsigned changes = fault.kind == DeviceFault::Kind::flap ? 2 * fault.times : 1;
            here.planned.push_back({fault, changes,
                                    Clock::now() + std::chrono::milliseconds(fault.delay_ms),
                                    from_list});
        }
        const std::uint64_t one = 1;
        static_cast<void>(::write(here.wake.get(), &one, sizeof one));
        return 0;
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

} // namespace

int flap_port(unsigned device, std::uint8_t port, unsigned period_ms, unsigned times) noexcept {
    if (period_ms == 0 || period_ms > longest_period_ms || times == 0 || times > most_flaps) {
        return EINVAL;
    }
    const DeviceFault fault{DeviceFault::Kind::flap, device, port, 0, period_ms, times};
    return add(std::span(&fault, 1), false);
}

int plan(std::span<const DeviceFault> faults) noexcept {
    return faults.empty() ? 0 : add(faults, true);
}

void cancel_plan() noexcept {
    Control& here = control();
    const std::scoped_lock lock(here.lock);
    std::erase_if(here.planned, [](const Planned& planned) { return planned.from_list; });
}

void cancel_all() noexcept {
    Control& here = control();
    const std::scoped_lock lock(here.lock);
    here.planned.clear();
}

std::string execute(std::string_view command) {
    const std::string_view verb = next_word(command);
    if (verb == "fault") {
        const int error = softverbs_set_faults(std::string(command).c_str());
        return error != EINVAL
                   ? result_text(error, "fault")
                   : "\"" + std::string(command) +
                         "\" is not a list such as reg_mr#3=ENOMEM,packet#5=drop,slow:20ms";
    }
    if (verb == "port") {
        return execute_port(command);
    }
    if (verb == "reset-device") {
        const auto device = parse_number(command);
        return device
                   ? result_text(softverbs_reset_device(*device), "reset-device")
                   : "\"" + std::string(command) + "\" is not a device number, such as 0 for soft0";
    }
    return "there is no command \"" + std::string(verb) +
           "\"; the commands are fault, port and reset-device";
}

} // namespace softverbs::control

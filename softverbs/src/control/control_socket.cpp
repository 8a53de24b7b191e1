// SPDX-License-Identifier: BSD-3-Clause
#include "control/control_socket.hpp"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <softverbs/softverbs.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>

#include "control/device_faults.hpp"
#include "control/text.hpp"
#include "fabric/background_thread.hpp"
#include "fabric/clock.hpp"
#include "fabric/rendezvous.hpp"
#include "fabric/report.hpp"
#include "fabric/spare_descriptor.hpp"
#include "fabric/uncancellable.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::control {

using fabric::UniqueFd;

namespace {

/// Returns whether the process exists whose PID is in the name of the socket file @p socket. Finds
/// only processes in the PID namespace of this process.
bool owner_exists(std::string_view socket) {
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(socket.data(), socket.data() + socket.size(), pid);
    return error == std::errc() && pid > 0 && (::kill(pid, 0) == 0 || errno != ESRCH);
}

void remove_unused_sockets(const fabric::Rendezvous& directory) {
    directory.for_each_file([&](std::string_view entry) {
        constexpr std::size_t longest_name = 32;
        const std::string name(entry);
        if (name.ends_with(".control") && name.size() <= longest_name && !owner_exists(name) &&
            !directory.connect(name) && errno == ECONNREFUSED) {
            ::unlinkat(directory.fd(), name.c_str(), 0);
        }
        return true;
    });
}

UniqueFd listen_on_socket(const fabric::Rendezvous& directory, const std::string& name) {
    // Listen under a temporary name, and then rename the socket file. Otherwise another process
    // could remove the file, with remove_unused_sockets(), between bind() and listen().
    const std::string unfinished = name + ".new";
    UniqueFd socket = directory.listen(unfinished);
    if (!socket ||
        ::renameat(directory.fd(), unfinished.c_str(), directory.fd(), name.c_str()) != 0) {
        fabric::report("this process accepts no commands of softverbs fault and softverbs port: " +
                       directory.path() + "/" + name + ": " + std::strerror(errno));
        return {};
    }
    return socket;
}

constexpr int command_timeout_ms = 1000;

/// State of the control thread, which executes commands from other processes. The state has its own
/// lock. Process::lock cannot protect it, because the commands lock Process::lock.
struct Control {
    std::mutex lock;
    bool started = false;
    pid_t owner = 0;
    UniqueFd listener;
    UniqueFd wake;
    /// The directory in which the softverbs processes of this host find each other. It contains the
    /// control socket.
    std::unique_ptr<fabric::Rendezvous> directory;
    /// The file name of the control socket.
    std::string name;
    std::unique_ptr<fabric::SpareDescriptor> spare;
    PlannedFaults planned;
};

/// Returns the state of the control thread. It is never freed, because the control thread uses it
/// until the process ends.
Control& control() {
    static auto* const the_one = new Control;
    return *the_one;
}

/// Returns the time in milliseconds for which the control thread may sleep; -1: without limit.
int time_to_next_change() {
    return fabric::clock_is_stopped() ? -1 : fabric::time_limit_ms(next_change());
}

/// Makes the state changes that are due. Returns whether a change was made. While the clock is
/// stopped, only step() makes changes (@p by_step is true). While it runs, only the control thread
/// does.
bool change_due_states(Control& here, bool by_step) {
    const auto next = [&]() -> std::optional<PlannedFault> {
        const std::scoped_lock lock(here.lock);
        return fabric::clock_is_stopped() == by_step ? here.planned.take_due() : std::nullopt;
    };
    bool any = false;
    while (const auto due = next()) {
        change_state(*due);
        any = true;
    }
    return any;
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
    // Read one message, which is the whole command of the client. The time limit of poll() prevents
    // a client that sends nothing from blocking the control thread.
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
        const int ready = ::poll(descriptors.data(), descriptors.size(), time_to_next_change());
        try {
            change_due_states(here, false);
            fabric::clear_eventfd(wake);
            if (ready > 0 && descriptors[1].revents != 0) {
                serve_client(listener, *here.spare);
            }
        } catch (const std::exception&) {
            // A memory allocation has failed. If a client has sent a command, its connection is
            // closed without a reply.
        }
    }
}

/// Creates the control socket and the control thread. The caller must hold here.lock.
void start_thread(Control& here) {
    here.wake.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    here.directory = std::make_unique<fabric::Rendezvous>(fabric::default_directory());
    here.name = std::to_string(::getpid()) + ".control";
    remove_unused_sockets(*here.directory);
    here.spare = std::make_unique<fabric::SpareDescriptor>();
    here.listener = listen_on_socket(*here.directory, here.name);
    here.owner = ::getpid();
    try {
        fabric::start_background_thread("softverbs-ctl", [listener = here.listener.get(),
                                                          wake = here.wake.get()] {
            run(listener, wake);
        }).detach();
        here.started = true;
    } catch (const std::system_error&) {
        ::unlinkat(here.directory->fd(), here.name.c_str(), 0);
        here.listener.reset();
    }
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
        return; // this process runs without the control socket
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

int plan(std::span<const DeviceFault> faults, bool from_list) noexcept {
    if (faults.empty()) {
        return 0;
    }
    start(); // the thread executes each fault at its time
    try {
        Control& here = control();
        const std::scoped_lock lock(here.lock);
        if (!here.started) {
            return EAGAIN;
        }
        here.planned.add(faults, from_list);
        fabric::signal_eventfd(here.wake.get());
        return 0;
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

std::unique_lock<std::mutex> block() {
    return std::unique_lock(control().lock);
}

bool step() noexcept {
    try {
        return change_due_states(control(), true);
    } catch (const std::bad_alloc&) {
        return true; // memory is exhausted, and faults are still planned
    }
}

std::uint64_t next_change() noexcept {
    Control& here = control();
    const std::scoped_lock lock(here.lock);
    return here.planned.next_change();
}

void clock_runs() noexcept {
    Control& here = control();
    const std::scoped_lock lock(here.lock);
    if (here.started) {
        fabric::signal_eventfd(here.wake.get());
    }
}

void cancel_plan() noexcept {
    Control& here = control();
    const std::scoped_lock lock(here.lock);
    here.planned.remove_list();
}

void cancel_all() noexcept {
    Control& here = control();
    const std::scoped_lock lock(here.lock);
    here.planned.clear();
}

namespace {

std::string result_text(int error, const char* what) {
    return error == 0 ? "ok" : std::string(what) + ": " + std::strerror(error);
}

std::string execute_port(std::string_view arguments) {
    const auto device = parse_number(take_until(arguments, ' '));
    const auto port = parse_number(take_until(arguments, ' '));
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

} // namespace

std::string execute(std::string_view command) {
    const std::string_view verb = take_until(command, ' ');
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

// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <softverbs/softverbs.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "control/control_socket.hpp"
#include "control/device_faults.hpp"
#include "control/text.hpp"

namespace softverbs::control {

namespace {

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

} // namespace

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

// SPDX-License-Identifier: BSD-3-Clause
// Functions of libhl-thunk.so that rdmabuf calls.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <map>

#include "fake_habana.hpp"
#include "functions.hpp"
#include "machine.hpp"

// A definition with another type than the type by which rdmabuf calls the function does not
// compile.
#define DECLARE_FUNCTION(scope, type, name) extern "C" scope::type name;
THUNK_FUNCTIONS(DECLARE_FUNCTION)

namespace abi = fake_habana::abi;
using fake_driver::Machine;
using fake_driver::Needs;

namespace {

template <class Body>
int call(const char* function, Body&& body) {
    return fake_driver::call<int>(function, Needs::nothing, body);
}

std::map<int, abi::DeviceName>& open_devices() {
    static auto* const devices = new std::map<int, abi::DeviceName>;
    return *devices;
}

int open_device(abi::DeviceName name) {
    const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        open_devices().emplace(fd, name);
    }
    return fd;
}

void close_device(int fd) {
    ::close(fd);
    open_devices().erase(fd);
}

} // namespace

int fake_habana::open(abi::DeviceName name) {
    const std::lock_guard lock(Machine::get().mutex);
    return Machine::get().devices.empty() ? -1 : open_device(name);
}

const fake_driver::Vendor& fake_driver::vendor() {
    static const Vendor habana{.reset = [] {
        while (!open_devices().empty()) {
            close_device(open_devices().begin()->first);
        }
    }};
    return habana;
}

abi::DeviceName hlthunk_get_device_name_from_fd(int fd) {
    abi::DeviceName name = abi::DeviceName::invalid;
    call(__func__, [&](Machine&) {
        const auto found = open_devices().find(fd);
        name = found != open_devices().end() ? found->second : abi::DeviceName::invalid;
        return 0;
    });
    return name;
}

int hlthunk_get_pci_bus_id_from_fd(int fd, char* text, int length) {
    return call(__func__, [&](Machine&) -> int {
        if (!open_devices().contains(fd)) {
            return -ENODEV;
        }
        std::snprintf(text, static_cast<std::size_t>(length), "0000:33:00.0");
        return 0;
    });
}

int hlthunk_open_control(int index, const char* /*pci_bus_id*/) {
    return call(__func__, [&](Machine& machine) -> int {
        return machine.has_device(index) ? open_device(abi::DeviceName::gaudi2) : -1;
    });
}

int hlthunk_close(int fd) {
    return call(__func__, [&](Machine&) {
        close_device(fd);
        return 0;
    });
}

int hlthunk_device_mapped_memory_export_dmabuf_fd(int fd, std::uint64_t mapping, std::uint64_t size,
                                                  std::uint64_t offset, std::uint32_t /*flags*/) {
    return call(__func__, [&](Machine& machine) -> int {
        if (!open_devices().contains(fd)) {
            return -ENOTTY;
        }
        const auto block = machine.blocks.find(mapping);
        if (offset != 0 || size % fake_driver::cpu_page_size() != 0 || size == 0 ||
            block == machine.blocks.end() || size > block->second.size) {
            return -EINVAL;
        }
        machine.recorded["hlthunk_device_mapped_memory_export_dmabuf_fd"] = size;
        int exported = -1;
        return machine.share(mapping, block->second.size, &exported) && exported >= 0 ? exported
                                                                                      : -ENOMEM;
    });
}

// SPDX-License-Identifier: BSD-3-Clause
#include "rocm/rocm_runtime.hpp"

#include <unistd.h>

#include <cerrno>

#include "rocm/rocm_generations.hpp"

namespace rdmabuf::detail::rocm {

Runtime::Runtime(const Driver& driver) : driver_(&driver) {
    Generations::of_process().enter();
}

Runtime::~Runtime() {
    // The parent's threads and devices are not here: shutting them down would wait for them.
    if (is_parents()) {
        return;
    }
    Generations::of_process().leave(*driver_);
    report_teardown(driver_->functions().shut_down(), "hsa_shut_down");
}

bool Runtime::is_parents() noexcept {
    const pid_t process = Generations::of_process().process();
    return process != 0 && process != ::getpid();
}

Result<std::shared_ptr<const Runtime>> Runtime::acquire(const Driver& driver) {
    if (is_parents()) {
        return ErrorInfo{ENODEV, "hsa_init", "HSA was used before this process was forked",
                         "in the child of a process that used it, HSA stays "
                         "unusable: exec another program, or fork before it is "
                         "used"};
    }
    const Status initialised = driver.functions().init();
    if (initialised != success) {
        return ErrorInfo{ENODEV, "hsa_init",
                         "HSA cannot be initialised: " + driver.name_of(initialised),
                         "see whether rocminfo finds the GPU: it needs the amdgpu "
                         "module, and /dev/kfd and /dev/dri/renderD* open to this "
                         "user (groups render, video) and given to its container"};
    }
    try {
        return std::shared_ptr<const Runtime>(new Runtime(driver));
    } catch (...) {
        report_teardown(driver.functions().shut_down(), "hsa_shut_down");
        throw;
    }
}

} // namespace rdmabuf::detail::rocm

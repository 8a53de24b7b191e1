// SPDX-License-Identifier: BSD-3-Clause
#include "habana/synapse.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "common/driver_library.hpp"
#include "common/driver_result.hpp"

namespace rdmabuf::detail::habana {
namespace {

constexpr std::array synapse_names{"libSynapse.so", "/usr/lib/habanalabs/libSynapse.so"};
constexpr const char* synapse_remedy =
    "install habanalabs-graph of the Gaudi software, and make sure that the loader finds it (in "
    "/usr/lib/habanalabs); without it, add() memory that the program allocates";

SynapseFunctions look_up_synapse(SymbolLookup& lookup) {
    SynapseFunctions all;
    constexpr const char* since = "Gaudi 2";
    lookup.required("synInitialize", all.initialize, since);
    lookup.required("synDeviceAcquire", all.device_acquire, since);
    lookup.required("synDeviceRelease", all.device_release, since);
    lookup.required("synDeviceGetInfoV2", all.device_get_info, since);
    lookup.required("synDeviceMalloc", all.device_malloc, since);
    lookup.required("synDeviceFree", all.device_free, since);
    lookup.required("synHostMalloc", all.host_malloc, since);
    lookup.required("synHostFree", all.host_free, since);
    lookup.required("synStreamCreateGeneric", all.stream_create, since);
    lookup.required("synStreamDestroy", all.stream_destroy, since);
    lookup.required("synStreamSynchronize", all.stream_synchronize, since);
    lookup.required("synMemCopyAsync", all.mem_copy_async, since);
    return all;
}

std::string name_of(Status status) {
    constexpr std::array<StatusName, 14> names{{
        {invalid_argument, "synInvalidArgument"},
        {out_of_host_memory, "synOutOfHostMemory"},
        {out_of_device_memory, "synOutOfDeviceMemory"},
        {object_already_initialized, "synObjectAlreadyInitialized"},
        {no_device_found, "synNoDeviceFound"},
        {failed_to_allocate_device_memory, "synFailedToAllocateDeviceMemory"},
        {not_enough_devices_found, "synFailedNotEnoughDevicesFound"},
        {device_reset, "synDeviceReset"},
        {unsupported, "synUnsupported"},
        {device_already_acquired, "synDeviceAlreadyAcquired"},
        {busy, "synBusy"},
        {failed, "synFail"},
        {uninitialized, "synUninitialized"},
        {already_initialized, "synAlreadyInitialized"},
    }};
    return status_name(status, names);
}

int errno_of(Status status) noexcept {
    switch (status) {
        case invalid_argument:
            return EINVAL;
        case out_of_host_memory:
        case out_of_device_memory:
        case failed_to_allocate_device_memory:
            return ENOMEM;
        case no_device_found:
        case not_enough_devices_found:
            return ENODEV;
        case unsupported:
            return EOPNOTSUPP;
        case device_already_acquired:
        case busy:
            return EBUSY;
        default:
            return EIO;
    }
}

const char* remedy_for(Status status) noexcept {
    switch (status) {
        case no_device_found:
        case not_enough_devices_found:
            return "only one process can use a device at a time: hl-smi lists the processes that "
                   "use devices; for a container, check HABANA_VISIBLE_DEVICES";
        case device_already_acquired:
            return "this process has acquired a device already: allocate memory on that device, "
                   "and add() it to an exporter that is made with its descriptor "
                   "(HabanaOptions::fd)";
        case device_reset:
            return "the device is being reset: see dmesg";
        default:
            return nullptr;
    }
}

void report(Status status, const char* function) noexcept {
    report_teardown_unless({success}, status, errno_of(status), function);
}

/// Holds the device that this process has acquired, and the number of SharedDevice objects that use
/// the device.
struct Acquired {
    std::mutex mutex;
    std::unique_ptr<SynapseDevice> device;
    unsigned holders = 0;
};

Acquired& acquired() {
    // This object is never destroyed, because a static object of the program can own a buffer. When
    // such a buffer is freed at the end of the process, its destructor uses this object.
    static auto* const one = new Acquired;
    return *one;
}

} // namespace

DriverDescription<SynapseFunctions> Synapse::description() {
    return {synapse_names, "Synapse library", synapse_remedy, "update habanalabs-graph",
            look_up_synapse};
}

void Synapse::check(Status status, const char* function, std::string_view hint) const {
    if (status == success) {
        return;
    }
    DriverFailure{name_of(status), errno_of(status), remedy_for(status)}.raise(function, hint);
}

/// Owns host memory that the device can access. Copies between the device and the program go
/// through this memory.
class SynapseDevice::HostMemory {
  public:
    HostMemory(const SynapseDevice& device, std::size_t size) : device_(&device) {
        device.synapse_->check(
            device.synapse_->functions().host_malloc(device.id_, size, 0, &start_), "synHostMalloc",
            std::to_string(size) + " bytes of host memory for the copy cannot be allocated");
    }
    ~HostMemory() {
        report(device_->synapse_->functions().host_free(device_->id_, start_, 0), "synHostFree");
    }
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;

    [[nodiscard]] void* get() const noexcept { return start_; }
    [[nodiscard]] std::uint64_t address() const noexcept {
        return reinterpret_cast<std::uintptr_t>(start_);
    }

  private:
    const SynapseDevice* device_;
    void* start_ = nullptr;
};

SynapseDevice::SynapseDevice(const Synapse& synapse) : synapse_(&synapse) {
    const SynapseFunctions& functions = synapse.functions();
    const Status initialised = functions.initialize();
    if (initialised != already_initialized && initialised != object_already_initialized) {
        synapse.check(initialised, "synInitialize", "the library cannot be initialised");
    }
    synapse.check(functions.device_acquire(&id_, nullptr), "synDeviceAcquire",
                  "no device can be acquired");
    try {
        synapse.check(functions.device_get_info(id_, &info_), "synDeviceGetInfoV2",
                      "the address of the device's memory cannot be queried");
        synapse.check(functions.stream_create(&stream_, id_, 0), "synStreamCreateGeneric",
                      "a stream for copies cannot be created");
    } catch (...) {
        report(functions.device_release(id_), "synDeviceRelease");
        throw;
    }
}

SynapseDevice::~SynapseDevice() {
    report(synapse_->functions().stream_destroy(stream_), "synStreamDestroy");
    report(synapse_->functions().device_release(id_), "synDeviceRelease");
}

std::size_t SynapseDevice::reach(std::uint64_t end) {
    const std::lock_guard lock(mutex_);
    reach_ = std::max(reach_, end - mapping());
    return reach_;
}

std::uint64_t SynapseDevice::allocate(std::size_t size) {
    std::uint64_t address = 0;
    synapse_->check(synapse_->functions().device_malloc(id_, size, 0, 0, &address),
                    "synDeviceMalloc", std::to_string(size) + " bytes were requested");
    return address;
}

void SynapseDevice::free(std::uint64_t address) noexcept {
    report(synapse_->functions().device_free(id_, address, 0), "synDeviceFree");
}

void SynapseDevice::copy_in(std::uint64_t to, std::span<const std::byte> source) {
    const HostMemory host(*this, source.size());
    std::memcpy(host.get(), source.data(), source.size());
    copy(host.address(), source.size(), to, Direction::host_to_device);
}

void SynapseDevice::copy_out(std::uint64_t from, std::span<std::byte> destination) {
    const HostMemory host(*this, destination.size());
    copy(from, destination.size(), host.address(), Direction::device_to_host);
    std::memcpy(destination.data(), host.get(), destination.size());
}

void SynapseDevice::copy(std::uint64_t from, std::size_t size, std::uint64_t to,
                         Direction direction) {
    const std::string hint =
        std::to_string(size) + " bytes " +
        (direction == Direction::host_to_device ? "could not be copied to the device"
                                                : "could not be copied from the device");
    const std::lock_guard lock(mutex_);
    synapse_->check(synapse_->functions().mem_copy_async(stream_, from, size, to, direction),
                    "synMemCopyAsync", hint);
    synapse_->check(synapse_->functions().stream_synchronize(stream_), "synStreamSynchronize",
                    hint);
}

SharedDevice::SharedDevice(const Synapse& synapse) {
    Acquired& one = acquired();
    const std::lock_guard lock(one.mutex);
    if (one.device == nullptr) {
        one.device = std::make_unique<SynapseDevice>(synapse);
    }
    ++one.holders;
    device_ = one.device.get();
}

SharedDevice::~SharedDevice() {
    Acquired& one = acquired();
    const std::lock_guard lock(one.mutex);
    if (--one.holders == 0) {
        one.device.reset();
    }
}

} // namespace rdmabuf::detail::habana

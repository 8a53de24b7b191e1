// SPDX-License-Identifier: BSD-3-Clause
#include "fake_kernel.hpp"

#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "fake_machine.hpp"
#include "real_calls.hpp"

namespace rdmabuf::testing {
namespace {

namespace fs = std::filesystem;

std::atomic<FakeKernel*> in_force{nullptr};

constexpr unsigned drm_major = 226;
constexpr unsigned vfio_major = 511;
constexpr unsigned first_render_minor = 128;

int fail(int error) {
    errno = error;
    return -1;
}

} // namespace

FakeKernel::FakeKernel() {
    in_force = this;
}

FakeKernel::~FakeKernel() {
    in_force = nullptr;
}

FakeKernel* FakeKernel::current() noexcept {
    return in_force;
}

std::string FakeKernel::inside(const std::string& path) const {
    for (const char* prefix : {"/dev/udmabuf", "/dev/dma_heap", "/dev/dri", "/dev/vfio",
                               "/sys/module/udmabuf", "/sys/dev/char"}) {
        if (path.rfind(prefix, 0) == 0) {
            return directory_.path() + path;
        }
    }
    return {};
}

void FakeKernel::add_device(const std::string& path, Device device) {
    const fs::path file = inside(path);
    fs::create_directories(file.parent_path());
    std::ofstream(file).flush();
    devices_[path] = std::move(device);
}

void FakeKernel::add_udmabuf(unsigned size_limit_mb) {
    add_device("/dev/udmabuf", {.kind = Device::Kind::udmabuf});
    udmabuf_limit_ = std::uint64_t{size_limit_mb} << 20;
    const fs::path parameter = inside("/sys/module/udmabuf/parameters/size_limit_mb");
    fs::create_directories(parameter.parent_path());
    std::ofstream(parameter) << size_limit_mb << '\n';
}

void FakeKernel::hide_udmabuf_limit() {
    fs::remove_all(inside("/sys/module/udmabuf"));
}

void FakeKernel::add_heap(const std::string& name) {
    add_device("/dev/dma_heap/" + name, {.kind = Device::Kind::heap});
}

void FakeKernel::add_card(const std::string& name, Card card) {
    const bool render = name.rfind("render", 0) == 0;
    const auto index = static_cast<unsigned>(devices_.size());
    const unsigned minor_number = render ? first_render_minor + index : index;
    const fs::path sysfs =
        inside("/sys/dev/char/" + std::to_string(drm_major) + ":" + std::to_string(minor_number));
    // In sysfs the number is a link to the device's folder, whose `device` is a link to the
    // parent's.
    const fs::path parent = fs::path(directory_.path()) / "sys/devices" /
                            (card.pci_address.empty() ? "vgem" : card.pci_address);
    const fs::path folder = parent / "drm" / name;
    fs::create_directories(folder);
    fs::create_directories(sysfs.parent_path());
    fs::create_directory_symlink(folder, sysfs);
    fs::create_directory_symlink(parent, folder / "device");
    const fs::path subsystem = parent / "subsystem";
    if (!fs::is_symlink(subsystem)) {
        fs::create_symlink(card.pci_address.empty() ? "/sys/bus/platform" : "/sys/bus/pci",
                           subsystem);
    }
    add_device("/dev/dri/" + name, {.kind = Device::Kind::card,
                                    .card = std::move(card),
                                    .render = render,
                                    .number = makedev(drm_major, minor_number)});
}

void FakeKernel::add_vfio(const std::string& name, Vfio vfio) {
    const auto index = static_cast<unsigned>(devices_.size());
    add_device("/dev/vfio/devices/" + name, {.kind = Device::Kind::vfio,
                                             .number = makedev(vfio_major, index),
                                             .vfio = std::move(vfio)});
}

void FakeKernel::add_link(const std::string& path, const std::string& target) {
    const Device device = devices_.at(target);
    add_device(path, device);
}

void FakeKernel::fail_call(unsigned nth, int error) {
    const std::lock_guard lock(mutex_);
    calls_until_failure_ = nth;
    failure_ = error;
    failed_call_.reset();
}

std::optional<std::string> FakeKernel::failed_call() const {
    const std::lock_guard lock(mutex_);
    return failed_call_;
}

bool FakeKernel::fails(const std::string& call) {
    if (calls_until_failure_ == 0 || --calls_until_failure_ != 0) {
        return false;
    }
    failed_call_ = call;
    errno = failure_;
    return true;
}

void FakeKernel::fail_syncs(std::deque<int> errors) {
    const std::lock_guard lock(mutex_);
    sync_failures_ = std::move(errors);
}

std::vector<std::uint64_t> FakeKernel::syncs() const {
    const std::lock_guard lock(mutex_);
    return syncs_;
}

std::size_t FakeKernel::live_mappings() const {
    const std::lock_guard lock(mutex_);
    return mappings_.size();
}

std::set<std::shared_ptr<FakeKernel::OpenFile>> FakeKernel::open_files() const {
    std::set<std::shared_ptr<OpenFile>> files;
    for (const auto& [fd, file] : files_) {
        files.insert(file);
    }
    for (const auto& [start, file] : mappings_) {
        files.insert(file);
    }
    return files;
}

std::size_t FakeKernel::live_dumb_buffers() const {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const auto& file : open_files()) {
        count += file->dumb_buffers.size();
    }
    return count;
}

std::size_t FakeKernel::abandoned_dumb_buffers() const {
    const std::lock_guard lock(mutex_);
    return abandoned_;
}

std::size_t FakeKernel::masters() const {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const auto& file : open_files()) {
        count += file->master ? 1 : 0;
    }
    return count;
}

std::size_t FakeKernel::inheritable() const {
    const std::lock_guard lock(mutex_);
    return inheritable_;
}

int FakeKernel::do_open(const char* path, int flags, mode_t mode) {
    const std::string file = inside(path);
    if (file.empty()) {
        return __real_open(path, flags, mode);
    }
    const std::lock_guard lock(mutex_);
    if (fails("open")) {
        return -1;
    }
    if (forbidden_.contains(path)) {
        return fail(EACCES);
    }
    const int fd = __real_open(file.c_str(), flags, mode);
    inheritable_ += fd >= 0 && (flags & O_CLOEXEC) == 0 ? 1 : 0;
    const auto device = devices_.find(path);
    if (fd >= 0 && device != devices_.end()) {
        auto opened = std::make_shared<OpenFile>();
        opened->device = device->second;
        opened->master = device->second.kind == Device::Kind::card && !device->second.render;
        files_[fd] = std::move(opened);
    }
    return fd;
}

void* FakeKernel::do_opendir(const char* path) {
    const std::string folder = inside(path);
    if (folder.empty()) {
        return __real_opendir(path);
    }
    const std::lock_guard lock(mutex_);
    return fails("opendir") ? nullptr : __real_opendir(folder.c_str());
}

ssize_t FakeKernel::do_readlink(const char* path, char* buffer, std::size_t size) {
    const std::string link = inside(path);
    if (link.empty()) {
        return __real_readlink(path, buffer, size);
    }
    const std::lock_guard lock(mutex_);
    return fails("readlink") ? -1 : __real_readlink(link.c_str(), buffer, size);
}

int FakeKernel::do_fstat(int fd, struct ::stat* status) {
    const std::lock_guard lock(mutex_);
    const auto file = files_.find(fd);
    if (file == files_.end() || !file->second->device) {
        return __real_fstat(fd, status);
    }
    if (fails("fstat")) {
        return -1;
    }
    *status = {};
    status->st_mode = S_IFCHR;
    status->st_rdev = file->second->device->number;
    return 0;
}

void FakeKernel::let_go(const std::shared_ptr<OpenFile>& file) {
    if (file.use_count() == 1) {
        for (const auto& [handle, buffer] : file->dumb_buffers) {
            __real_close(buffer.backing);
            ++abandoned_;
        }
    }
}

int FakeKernel::do_close(int fd) {
    const std::lock_guard lock(mutex_);
    if (const auto file = files_.extract(fd)) {
        let_go(file.mapped());
    }
    return __real_close(fd);
}

int FakeKernel::do_duplicate(int fd, int command, int lowest) {
    const std::lock_guard lock(mutex_);
    const auto file = files_.find(fd);
    if (file == files_.end()) {
        return __real_fcntl(fd, command, lowest);
    }
    if (fails("fcntl")) {
        return -1;
    }
    const auto same = file->second;
    inheritable_ += command == F_DUPFD_CLOEXEC ? 0 : 1;
    const int copy = __real_fcntl(fd, command, lowest);
    if (copy >= 0) {
        files_[copy] = same;
    }
    return copy;
}

int FakeKernel::do_add_seals(int fd, int seals) {
    const std::lock_guard lock(mutex_);
    return fails("fcntl(F_ADD_SEALS)") ? -1 : __real_fcntl(fd, F_ADD_SEALS, seals);
}

int FakeKernel::do_ftruncate(int fd, off_t size) {
    const std::lock_guard lock(mutex_);
    return fails("ftruncate") ? -1 : __real_ftruncate(fd, size);
}

int FakeKernel::do_memfd_create(const char* name, unsigned flags) {
    constexpr unsigned noexec_seal = 0x8;
    const std::lock_guard lock(mutex_);
    if (fails("memfd_create")) {
        return -1;
    }
    if ((flags & noexec_seal) != 0 && !knows_noexec_seal_) {
        return fail(EINVAL);
    }
    inheritable_ += (flags & MFD_CLOEXEC) == 0 ? 1 : 0;
    // The kernel the tests run on may be an old one too.
    const int fd = __real_memfd_create(name, flags & ~noexec_seal);
    if (fd >= 0) {
        files_[fd] = std::make_shared<OpenFile>();
        files_[fd]->memfd = true;
    }
    return fd;
}

void* FakeKernel::do_mmap(void* hint, std::size_t size, int protection, int flags, int fd,
                          off_t offset) {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(fd);
    if (found == files_.end()) {
        return __real_mmap(hint, size, protection, flags, fd, offset);
    }
    if (fails("mmap")) {
        return MAP_FAILED;
    }
    OpenFile& file = *found->second;
    if (file.device) {
        // A dumb buffer, at the offset that MODE_MAP_DUMB gave.
        const auto handle = static_cast<std::uint32_t>(offset >> 32);
        const auto buffer = file.dumb_buffers.find(handle);
        if (buffer == file.dumb_buffers.end() || size > buffer->second.size) {
            errno = EINVAL;
            return MAP_FAILED;
        }
        fd = buffer->second.backing;
        offset = 0;
    }
    void* const start = __real_mmap(hint, size, protection, flags, fd, offset);
    if (start != MAP_FAILED) {
        mappings_[start] = found->second;
    }
    return start;
}

int FakeKernel::do_munmap(void* start, std::size_t size) {
    const std::lock_guard lock(mutex_);
    if (const auto mapping = mappings_.extract(start)) {
        let_go(mapping.mapped());
    }
    return __real_munmap(start, size);
}

int FakeKernel::do_ioctl(int fd, unsigned long request, void* argument) {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(fd);
    if (found == files_.end()) {
        return __real_ioctl(fd, request, argument);
    }
    const auto file = found->second;
    if (!file->device) {
        return request == DMA_BUF_IOCTL_SYNC && !file->memfd ? dmabuf_sync(argument) : fail(ENOTTY);
    }
    switch (file->device->kind) {
        case Device::Kind::udmabuf:
            return request == UDMABUF_CREATE ? udmabuf_create(argument) : fail(ENOTTY);
        case Device::Kind::heap:
            return request == DMA_HEAP_IOCTL_ALLOC ? heap_alloc(argument) : fail(ENOTTY);
        case Device::Kind::card:
            return drm_ioctl(*file, request, argument);
        case Device::Kind::vfio:
            return vfio_ioctl(*file->device, request, argument);
    }
    return fail(ENOTTY);
}

} // namespace rdmabuf::testing

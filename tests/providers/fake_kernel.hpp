// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "temporary_directory.hpp"

namespace rdmabuf::testing {

/// A machine with the devices a test gives it, in the place of the kernel's for as long as it
/// lives.
///
/// The linker sends the system calls of the library under test here (--wrap). Memory is real, in
/// memfds, so a range that is exported can be mapped and read; what the kernel checks of a request
/// is checked, with its errno. The last one made is in force; there can be one at a time.
class FakeKernel {
  public:
    struct Card {
        std::string driver = "vgem";
        bool dumb_buffers = true;
        bool prime_export = true;
        /// Empty: a device that is on no PCI bus.
        std::string pci_address = {};
        /// What the driver makes of a size asked for, less this.
        std::uint64_t shortfall = 0;
    };

    /// A device behind VFIO.
    struct Vfio {
        /// The sizes of its BARs, from BAR 0 on.
        std::vector<std::uint64_t> bars = {};
        /// What VFIO_DEVICE_FEATURE_DMA_BUF fails with, whatever is asked; otherwise 0. ENOTTY: a
        /// kernel without it.
        int refusal = 0;
    };

    struct VfioPages {
        std::uint64_t region = 0;
        std::uint64_t offset = 0;
    };

    FakeKernel();
    ~FakeKernel();
    FakeKernel(const FakeKernel&) = delete;
    FakeKernel& operator=(const FakeKernel&) = delete;

    /// Null when there is none.
    static FakeKernel* current() noexcept;

    // What the machine has.
    void add_udmabuf(unsigned size_limit_mb = 64);
    void hide_udmabuf_limit();
    void add_heap(const std::string& name);
    void add_card(const std::string& name, Card card);
    void add_card(const std::string& name) { add_card(name, Card()); }
    /// /dev/vfio/devices/@p name. Its BARs cannot be mapped; a dma-buf of their pages begins with a
    /// VfioPages that tells which ones they are.
    void add_vfio(const std::string& name, Vfio vfio);
    /// A symbolic link, as udev makes them in /dev/dri/by-path.
    void add_link(const std::string& path, const std::string& target);
    /// Opening it is EACCES from now on.
    void forbid(const std::string& path) { forbidden_.insert(path); }
    /// Before Linux 6.3 memfd_create does not know MFD_NOEXEC_SEAL.
    void forget_noexec_seal() { knows_noexec_seal_ = false; }

    // What goes wrong.
    /// The @p nth system call from now on that asks the kernel for something fails. 1 is the next
    /// one.
    void fail_call(unsigned nth, int error);
    /// The call that did fail: "mmap", "ioctl(UDMABUF_CREATE)". None while it has not come to that.
    [[nodiscard]] std::optional<std::string> failed_call() const;
    /// The next DMA_BUF_IOCTL_SYNC calls fail with these, one each; 0 lets one succeed.
    void fail_syncs(std::deque<int> errors);

    // What happened, and what is alive.
    /// The flags of every DMA_BUF_IOCTL_SYNC call, failed ones too.
    [[nodiscard]] std::vector<std::uint64_t> syncs() const;
    [[nodiscard]] std::size_t live_mappings() const;
    [[nodiscard]] std::size_t live_dumb_buffers() const;
    /// Dumb buffers whose handles were left for close(2) to take.
    [[nodiscard]] std::size_t abandoned_dumb_buffers() const;
    /// Primary nodes that are still held as their master, through a descriptor or a mapping.
    [[nodiscard]] std::size_t masters() const;
    /// Descriptors that were made without close-on-exec, however short their life.
    [[nodiscard]] std::size_t inheritable() const;

    // The system calls. Only what is named here is faked; the rest goes to the real kernel.
    int do_open(const char* path, int flags, mode_t mode);
    void* do_opendir(const char* path);
    ssize_t do_readlink(const char* path, char* buffer, std::size_t size);
    int do_fstat(int fd, struct ::stat* status);
    int do_close(int fd);
    int do_duplicate(int fd, int command, int lowest);
    int do_add_seals(int fd, int seals);
    int do_ftruncate(int fd, off_t size);
    int do_memfd_create(const char* name, unsigned flags);
    void* do_mmap(void* hint, std::size_t size, int protection, int flags, int fd, off_t offset);
    int do_munmap(void* start, std::size_t size);
    int do_ioctl(int fd, unsigned long request, void* argument);

  private:
    struct Device;
    struct OpenFile;
    struct DumbBuffer;

    /// Where the folder of this machine has @p path; empty for a path that is the real kernel's.
    [[nodiscard]] std::string inside(const std::string& path) const;
    void add_device(const std::string& path, Device device);
    /// Whether it is this call's turn to fail; errno is set then.
    bool fails(const std::string& call);
    [[nodiscard]] std::set<std::shared_ptr<OpenFile>> open_files() const;
    /// One descriptor or mapping of @p file is gone; with the last one go its handles.
    void let_go(const std::shared_ptr<OpenFile>& file);
    int new_dmabuf(int backing, bool close_on_exec);
    int drm_ioctl(OpenFile& file, unsigned long request, void* argument);
    int udmabuf_create(void* argument);
    int heap_alloc(void* argument);
    int dmabuf_sync(void* argument);
    int vfio_ioctl(const Device& device, unsigned long request, void* argument);
    int vfio_dmabuf(const Device& device, void* argument);

    mutable std::recursive_mutex mutex_;
    TemporaryDirectory directory_;
    std::map<std::string, Device> devices_;
    std::set<std::string> forbidden_;
    bool knows_noexec_seal_ = true;
    std::uint64_t udmabuf_limit_ = 0;
    std::map<int, std::shared_ptr<OpenFile>> files_;
    /// A mapping keeps the file it was made from open.
    std::map<void*, std::shared_ptr<OpenFile>> mappings_;
    std::size_t abandoned_ = 0;
    std::size_t inheritable_ = 0;
    unsigned calls_until_failure_ = 0;
    int failure_ = 0;
    std::optional<std::string> failed_call_;
    std::deque<int> sync_failures_;
    std::vector<std::uint64_t> syncs_;
};

} // namespace rdmabuf::testing

// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/verbs_buf.hpp>

#include "base/address_space.hpp"
#include "base/text.hpp"
#include "common/buffer_table.hpp"
#include "common/exported_memory.hpp"
#include "common/table_exporter.hpp"

namespace rdmabuf {
namespace {

constexpr const char* name_of_exporter = "verbs_buf";
constexpr const char* alloc_call = "ibv_alloc_buf";
constexpr const char* export_call = "ibv_export_buf_dmabuf_fd";

/// Holds pointers to the functions of libibverbs that this exporter calls. A pointer is null if
/// libibverbs does not have the function.
struct Functions {
    void* (*alloc_buf)(ibv_pd* pd, std::size_t size, ibv_buf** buffer) = nullptr;
    void (*free_buf)(ibv_buf* buffer) = nullptr;
    int (*export_buf)(ibv_buf* buffer) = nullptr;

    [[nodiscard]] bool complete() const noexcept {
        return alloc_buf != nullptr && free_buf != nullptr && export_buf != nullptr;
    }
};

template <class Function>
void look_up(Function*& function, const char* name, const char* version) noexcept {
    function = reinterpret_cast<Function*>(::dlvsym(RTLD_DEFAULT, name, version));
}

Functions find_functions() noexcept {
    Functions found;
    look_up(found.alloc_buf, alloc_call, "IBVERBS_1.17");
    look_up(found.free_buf, "ibv_free_buf", "IBVERBS_1.17");
    look_up(found.export_buf, export_call, "IBVERBS_1.18");
    return found;
}

ErrorInfo no_functions() {
    return {EOPNOTSUPP, export_call, "libibverbs has no ibv_export_buf_dmabuf_fd (IBVERBS_1.18)",
            "use rdma-core 65 or newer"};
}

/// Owns a buffer of ibv_alloc_buf(), and keeps the protection domain of the buffer alive.
class VerbsBuffer {
  public:
    VerbsBuffer(const Functions& functions, ProtectionDomain pd, std::size_t size)
        : free_buf_(functions.free_buf),
          pd_(std::move(pd)),
          size_(size),
          address_((errno = 0, functions.alloc_buf(pd_.native(), size, &buffer_))) {
        if (address_ == nullptr) {
            throw Error(
                errno != 0 ? errno : ENOMEM, alloc_call,
                std::to_string(size) + " bytes were requested from " + pd_.context().device_name());
        }
    }
    VerbsBuffer(const VerbsBuffer&) = delete;
    VerbsBuffer& operator=(const VerbsBuffer&) = delete;
    ~VerbsBuffer() {
        if (creator_.is_current()) {
            free_buf_(buffer_);
        }
    }

    [[nodiscard]] ibv_buf* native() const noexcept { return buffer_; }
    [[nodiscard]] std::uintptr_t address() const noexcept {
        return reinterpret_cast<std::uintptr_t>(address_);
    }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept {
        return {static_cast<std::byte*>(address_), size_};
    }

  private:
    void (*free_buf_)(ibv_buf*);
    ProtectionDomain pd_;
    std::size_t size_;
    detail::CreatorProcess creator_;
    ibv_buf* buffer_ = nullptr;
    void* address_;
};

/// Exports the dma-buf of a buffer. The dma-buf begins at the first byte of the buffer
/// (fill_mr_init_attr_from_buf in libibverbs/verbs.c).
Result<UniqueFd> try_to_export(const Functions& functions, ibv_buf* buffer, std::size_t size) {
    errno = 0;
    UniqueFd dmabuf(functions.export_buf(buffer));
    if (!dmabuf) {
        const int error = errno != 0 ? errno : EIO;
        if (error != ENODATA) {
            return ErrorInfo{error, export_call, "the buffer cannot be exported"};
        }
        return ErrorInfo{error, export_call,
                         "the buffers of this protection domain are ordinary memory",
                         "register them with ibv_reg_mr; in a confidential guest, use a parent "
                         "domain that allows unprotected memory"};
    }
    if (const auto exported = detail::dmabuf_size(dmabuf.get()); exported && *exported < size) {
        return ErrorInfo{ERANGE, export_call,
                         "the dma-buf has " + std::to_string(*exported) +
                             " bytes, and the buffer " + std::to_string(size)};
    }
    return dmabuf;
}

Allocation allocation_of(std::uintptr_t address, std::size_t size) {
    return {.base = address, .length = size, .generation = 0, .kind = MemoryKind::system};
}

class VerbsBufMemory final : public Buffer::Memory {
  public:
    VerbsBufMemory(std::shared_ptr<detail::BufferTable> table, std::shared_ptr<VerbsBuffer> buffer,
                   UniqueFd dmabuf)
        : buffer_(std::move(buffer)),
          range_(std::move(table), allocation_of(buffer_->address(), buffer_->bytes().size()),
                 std::move(dmabuf), 0, buffer_) {}

    [[nodiscard]] std::uintptr_t address() const noexcept override { return buffer_->address(); }
    [[nodiscard]] std::size_t size() const noexcept override { return buffer_->bytes().size(); }
    [[nodiscard]] std::span<std::byte> mapping() const noexcept override {
        return buffer_->bytes();
    }
    /// Returns -1 although the buffer has a dma-buf, because the CPU can access memory of
    /// ibv_alloc_buf() without DMA_BUF_IOCTL_SYNC.
    [[nodiscard]] int sync_fd() const noexcept override { return -1; }

  private:
    std::shared_ptr<VerbsBuffer> buffer_;
    detail::TableRange range_;
};

class PdExporter final : public detail::TableExporter<VerbsBufExporter> {
  public:
    explicit PdExporter(ProtectionDomain pd)
        : TableExporter(name_of_exporter), pd_(std::move(pd)) {}

    [[nodiscard]] Availability availability() const override {
        try {
            const Functions functions = find_functions();
            if (!functions.complete()) {
                return no_functions().availability();
            }
            const std::size_t page = detail::page_size();
            const VerbsBuffer buffer(functions, pd_, page);
            const auto exported = try_to_export(functions, buffer.native(), page);
            return exported ? Availability::yes("buffers of a protection domain of " +
                                                pd_.context().device_name())
                            : exported.error_info().availability();
        } catch (const Error& error) {
            return Availability::no(error.what());
        }
    }

    [[nodiscard]] Buffer allocate(std::size_t size) override {
        detail::check_allocated(size);
        const Functions functions = complete_functions();
        auto buffer =
            std::make_shared<VerbsBuffer>(functions, pd_, detail::round_up_to_pages(size));
        UniqueFd dmabuf =
            try_to_export(functions, buffer->native(), buffer->bytes().size()).value();
        return Buffer(
            std::make_unique<VerbsBufMemory>(table_, std::move(buffer), std::move(dmabuf)));
    }

    [[nodiscard]] AddedRange add(ibv_buf* buffer, void* address, std::size_t size) override {
        const auto base = reinterpret_cast<std::uintptr_t>(address);
        const std::string described =
            std::to_string(size) + " bytes at " + detail::hexadecimal(base);
        detail::check_added(base, size, described);
        if (buffer == nullptr) {
            throw Error(EINVAL, "add", described + ": the ibv_buf is null");
        }
        UniqueFd dmabuf = try_to_export(complete_functions(), buffer, size).value();
        return detail::add_range(table_, allocation_of(base, size), std::move(dmabuf), 0);
    }

  private:
    static Functions complete_functions() {
        const Functions functions = find_functions();
        if (!functions.complete()) {
            no_functions().raise();
        }
        return functions;
    }

    ProtectionDomain pd_;
};

} // namespace

std::shared_ptr<VerbsBufExporter> make_verbs_buf_exporter(ProtectionDomain pd) {
    return std::make_shared<PdExporter>(std::move(pd));
}

} // namespace rdmabuf

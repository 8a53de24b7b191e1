// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include <rdmabuf/error.hpp>
#include <rdmabuf/exporter.hpp>

#include "fails_with.hpp"
#include "fake_driver.hpp"
#include "support.hpp"

namespace rdmabuf::testing {

namespace fake = fake_driver;

/// A call of the driver that fails, and the Error that an exporter throws for it.
struct DriverFailure {
    std::string function = {};
    int result;
    int error;
    std::string text = {};
};

/// A driver library that cannot be used.
struct LibraryRow {
    /// Loads the first library of the names that exists.
    std::function<std::optional<ErrorInfo>(std::span<const char* const>)> load;
    /// Texts for a library that is not installed.
    std::string absent = {};
    std::string install = {};
    /// Functions that an old library lacks, and functions that it has or that are optional.
    std::vector<std::string> lacks = {};
    std::vector<std::string> has = {};
    std::string update = {};
    /// File name of the old library.
    const char* old;
};

/// Memory that an exporter refuses to export.
struct RefusedKind {
    fake::Kind kind;
    int error;
    std::vector<std::string> texts = {};
};

/// An exporter and its fake driver: the row of a vendor in the table of the shared tests. Each test
/// program defines driver_row().
struct DriverRow {
    /// Exporter::name().
    std::string name = {};
    /// Makes an exporter that allocates on a device.
    std::function<std::shared_ptr<Allocator>(int device)> make;
    /// Makes an exporter for memory that the program has allocated. Null: the same exporter.
    std::function<std::shared_ptr<Allocator>()> for_program = nullptr;
    /// Adds memory of the program to the exporter. Null for exporters that find memory by its
    /// address.
    std::function<AddedRange(Allocator&, std::uintptr_t address, std::size_t length,
                             std::uint64_t generation)>
        add = nullptr;
    /// Initialises the driver as the program. May be null.
    std::function<void(const Allocator&)> begin = nullptr;
    /// Checks that nothing of the exporter is left. May be null.
    std::function<void()> end = nullptr;

    std::vector<LibraryRow> libraries = {};
    /// Text for a machine without devices, and the remedy.
    std::string no_device = {};
    std::string no_device_remedy = {};
    /// Availability::reason on a machine with two devices.
    std::string available = {};

    std::vector<DriverFailure> allocate_failures = {};
    std::vector<DriverFailure> export_failures = {};
    std::vector<DriverFailure> copy_failures = {};
    /// Failures of freeing a buffer that are reported, and those that are not, because the driver
    /// has been shut down before.
    std::vector<DriverFailure> free_failures = {};
    std::vector<DriverFailure> silent_free_failures = {};
    /// The function that exports.
    std::string export_call = {};
    /// The Error of an export for which the driver reports success and returns no descriptor.
    DriverFailure no_descriptor{"", 0, EIO, "returned no descriptor"};
    /// Whether Setting::packed has a meaning.
    bool packs = false;
    /// See Subject in exporter_suite.hpp.
    bool exports_pages = false, exports_more = false;

    // Exporters that find memory by its address:
    /// The function that initialises the driver, and the error before that.
    DriverFailure uninitialised{};
    /// Number of calls of find() for memory of another exporter.
    unsigned calls_of_miss = 1;
    /// Kinds of memory that are found on device 1, and its PCI address. Exporters to which memory
    /// is added have one row.
    struct FoundKind {
        fake::Kind made;
        MemoryKind found;
        std::string pci_address;
    };
    std::vector<FoundKind> kinds = {};
    std::vector<RefusedKind> refused_kinds = {};
    std::vector<DriverFailure> find_failures = {};
    /// Calls of find() that fail after another thread has freed the memory. The failure then means
    /// that the memory is unknown.
    std::vector<DriverFailure> find_steps = {};
    /// Result of an export after another thread has freed the memory.
    int export_step_result = 0;
    /// Makes device 0 unable to export, and texts of the error.
    std::function<void()> disable_exports = nullptr;
    std::vector<std::string> disabled_texts = {};
    /// Availability::reason if device 1 still exports. Empty if no device does.
    std::string available_without_first = {};

    // Exporters with MappingKind::pcie, whose driver cannot be used in a child process:
    /// Results of exports of MappingKind::pcie on a device without that mapping.
    std::vector<int> no_pcie = {};
    /// Result of such an export that does not mean that the mapping is missing: no memory.
    int pcie_failure = 0;
    /// The function that exports MappingKind::pcie.
    std::string pcie_call = {};
    /// Text of the Error in a child process.
    std::string fork_text = {};
    /// Whether the exporter calls the driver in a child process, which then refuses the call.
    bool child_calls_driver = true;
};

[[nodiscard]] const DriverRow& driver_row();

/// Tests on a machine with two devices of the fake driver, which a program already uses. After each
/// test no descriptor is left, and the checks of DriverRow::end succeed.
class DriverTest : public ::testing::Test {
  protected:
    DriverTest();
    ~DriverTest() override;

    static std::uint64_t make(fake::Kind kind = fake::Kind::device, std::size_t size = page_size(),
                              unsigned device = 0, bool exportable = true) {
        return fake::make(kind, size, device, exportable);
    }
    /// Writes a pattern to memory, without the driver. @return the pattern
    static std::vector<std::byte> put(std::uint64_t address, std::size_t length, unsigned seed);
    static std::vector<std::byte> part(const std::vector<std::byte>& bytes, std::size_t offset,
                                       std::size_t length);
    static std::vector<std::byte> bytes_of(const ExportedRange& range) {
        return bytes_through(range, false);
    }
    /// Adds memory to exporter_ if the exporter has to be notified of memory.
    [[nodiscard]] std::optional<AddedRange> add(std::uint64_t address, std::size_t length,
                                                std::uint64_t generation = 0) const;
    /// Returns the error of exporting memory of the program, none if it is exported.
    [[nodiscard]] std::optional<Error> refusal(std::uint64_t address, std::size_t length = 1,
                                               MappingKind mapping = MappingKind::standard) const;
    [[nodiscard]] std::optional<Error> refusal_to_allocate() const {
        return error_of([&] { (void)allocator_->allocate(1); });
    }

    std::set<int> descriptors_ = open_descriptors();
    std::shared_ptr<Allocator> allocator_;
    /// Exports memory of the program.
    std::shared_ptr<Allocator> exporter_;
};

/// Matches the Error of a failed call: the function, the errno value and the text.
::testing::Matcher<std::optional<Error>> is_error_of(const DriverFailure& failure);

} // namespace rdmabuf::testing

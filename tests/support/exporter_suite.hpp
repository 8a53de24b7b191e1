// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rdmabuf/exporter.hpp>

#include "support.hpp"

namespace rdmabuf::testing {

/// An exporter under test, and the fake machine that it needs.
struct Subject {
    /// The value of Exporter::name().
    std::string name;
    std::function<std::shared_ptr<Allocator>()> make;
    /// Creates the fake machine of one test. A null pointer: the exporter uses the real machine.
    std::function<std::shared_ptr<void>()> machine = [] { return nullptr; };
    /// A text that the reason of Exporter::availability() must contain.
    std::string works_with = "/dev/";
    /// False if the exports are not real dma-bufs, so that they lack DMA_BUF_IOCTL_SYNC.
    bool makes_dmabufs = true;
    /// False if the CPU cannot map the memory, so that the driver copies the bytes.
    bool mapped = true;
    /// True if a dma-buf holds only the pages of the exported range, and not the whole buffer.
    bool exports_pages = false;
    /// True if a dma-buf holds the whole block of memory from which the buffer was allocated.
    bool exports_more = false;
    /// True if an export with MappingKind::pcie falls back to MappingKind::standard.
    bool falls_back = false;

    friend std::ostream& operator<<(std::ostream& out, const Subject& subject) {
        return out << subject.name;
    }
};

/// Fills a buffer as fill() does, through its mapping if it has one. @return the bytes
std::vector<std::byte> fill_buffer(const Buffer& buffer, unsigned seed);

/// Tests that every exporter with an allocator must pass. exporter_suite.cpp has the tests. A
/// provider instantiates them: INSTANTIATE_TEST_SUITE_P(Drm, ExporterSuite, Values(Subject{...})).
class ExporterSuite : public ::testing::TestWithParam<Subject> {
  protected:
    [[nodiscard]] Allocator& exporter() const { return *exporter_; }
    [[nodiscard]] std::vector<std::byte> bytes_of(const ExportedRange& range) const {
        return bytes_through(range, GetParam().makes_dmabufs);
    }
    /// Releases the reference of the test to the exporter, while buffers of the exporter exist.
    void drop_exporter() { exporter_.reset(); }

  private:
    std::shared_ptr<void> machine_ = GetParam().machine();
    std::shared_ptr<Allocator> exporter_ = GetParam().make();
};

/// Makes each system call of an exporter fail in turn. Checks that nothing leaks, and that the
/// error is reported. Subject::machine must create a FakeKernel.
class ExporterFaults : public ExporterSuite {};

} // namespace rdmabuf::testing

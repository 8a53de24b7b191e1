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

/// An exporter under test, and the machine it needs around it.
struct Subject {
    /// Its Exporter::name().
    std::string name;
    std::function<std::shared_ptr<Allocator>()> make;
    /// Lives as long as a test. Null: the machine that the tests run on.
    std::function<std::shared_ptr<void>()> machine = [] { return nullptr; };
    /// What its availability() names.
    std::string works_with = "/dev/";
    /// False for a stand-in, which opens no device and knows no DMA_BUF_IOCTL_SYNC.
    bool makes_dmabufs = true;
    /// False for memory without a mapping for the CPU: its driver copies.
    bool mapped = true;
    /// A dma-buf holds the pages of the range asked for, and not the whole buffer.
    bool exports_pages = false;
    /// A dma-buf holds more than the buffer: what it was cut out of.
    bool exports_more = false;
    /// MappingKind::pcie is there on some machines, and falls back on the others.
    bool falls_back = false;

    friend std::ostream& operator<<(std::ostream& out, const Subject& subject) {
        return out << subject.name;
    }
};

/// Fills a buffer as fill() does, through its mapping where it has one. @return its bytes
std::vector<std::byte> fill_buffer(const Buffer& buffer, unsigned seed);

/// What every exporter that makes memory must do. The tests are in exporter_suite.cpp; a provider
/// instantiates them: INSTANTIATE_TEST_SUITE_P(Drm, ExporterSuite, Values(Subject{...})).
class ExporterSuite : public ::testing::TestWithParam<Subject> {
  protected:
    [[nodiscard]] Allocator& exporter() const { return *exporter_; }
    [[nodiscard]] const std::shared_ptr<Allocator>& shared() const { return exporter_; }
    [[nodiscard]] std::vector<std::byte> bytes_of(const ExportedRange& range) const {
        return bytes_through(range, GetParam().makes_dmabufs);
    }
    /// The test's own handle goes; buffers stay.
    void drop_exporter() { exporter_.reset(); }

  private:
    std::shared_ptr<void> machine_ = GetParam().machine();
    std::shared_ptr<Allocator> exporter_ = GetParam().make();
};

/// When each system call of an exporter fails in turn, nothing leaks and the reason is reported.
/// Needs a FakeKernel for a machine.
class ExporterFaults : public ExporterSuite {};

} // namespace rdmabuf::testing

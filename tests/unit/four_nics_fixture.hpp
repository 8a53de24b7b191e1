// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include <rdmabuf/rdmabuf.hpp>

#include "fake_exporter.hpp"
#include "softverbs_fixture.hpp"
#include "waiting.hpp"

namespace rdmabuf::testing {

/// Observes the threads that register dma-bufs, and can hold them back until several of them
/// register at the same time.
class RegisteringThreads {
  public:
    /// Holds every registration back until @p count of them have begun, for at most 20 s.
    void wait_for(unsigned count) { wanted_ = count; }

    void on_call(std::string_view verb) {
        if (verb != "ibv_reg_dmabuf_mr") {
            return;
        }
        std::unique_lock lock(mutex_);
        ids_.insert(std::this_thread::get_id());
        if (++inside_ >= wanted_) {
            met_ = true;
            changed_.notify_all();
        }
        changed_.wait_for(lock, time_limit, [this] { return met_; });
        --inside_;
    }

    /// Whether so many registrations were in progress at the same time.
    [[nodiscard]] bool met() const { return met_; }
    [[nodiscard]] const std::set<std::thread::id>& ids() const { return ids_; }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    unsigned wanted_ = 1;
    unsigned inside_ = 0;
    bool met_ = false;
    std::set<std::thread::id> ids_;
};

/// Four NICs, and a fake exporter with memory of 4 MiB.
class FourNics : public SoftverbsTest {
  protected:
    static constexpr std::size_t mebibyte = std::size_t{1} << 20U;

    FourNics() {
        use_roce_devices({"soft0", "soft1", "soft2", "soft3"});
        for (const char* const name : {"soft0", "soft1", "soft2", "soft3"}) {
            pds_.emplace_back(Context::open(name));
        }
    }

    /// Observes the registrations from now on.
    [[nodiscard]] std::shared_ptr<RegisteringThreads> observe(unsigned wait_for = 1) {
        auto threads = std::make_shared<RegisteringThreads>();
        threads->wait_for(wait_for);
        before_each_call([threads](const char* verb) { threads->on_call(verb); });
        return threads;
    }
    [[nodiscard]] std::uintptr_t base() const { return exporter_->allocation.base; }

    std::vector<ProtectionDomain> pds_;
    std::shared_ptr<FakeExporter> exporter_ = std::make_shared<FakeExporter>(4 * mebibyte);
    Resolver resolver_{{exporter_}};
    const std::set<std::thread::id> this_thread_{std::this_thread::get_id()};
};

} // namespace rdmabuf::testing

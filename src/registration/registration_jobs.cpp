// SPDX-License-Identifier: BSD-3-Clause
#include "registration/registration_jobs.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cassert>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "base/cancellation.hpp"
#include "registration/registration_hints.hpp"

namespace rdmabuf::detail {
namespace {

/// If RegistrationOptions::threads is 0, several threads are used only if a NIC has at least this
/// number of bytes to register. The registration of fewer bytes takes less time than the creation
/// of a thread.
constexpr std::size_t least_parallel_bytes = std::size_t{1} << 20U;
/// The maximum number of threads if RegistrationOptions::threads is 0.
constexpr std::size_t most_default_threads = 16;

void register_piece(RegistrationJob& job, std::size_t piece) {
    job.regions[piece].emplace(job.maker.make(job.pieces[piece]));
}

/// The registration jobs of one NIC, and the position of the next piece (part of a range) to
/// register.
struct Lane {
    const ibv_device* nic = nullptr;
    std::vector<RegistrationJob*> jobs = {};
    /// The index in `jobs` of the next job.
    std::size_t job = 0;
    /// The index of the next piece of this job.
    std::size_t piece = 0;
    /// The number of threads that currently register on this NIC.
    unsigned active = 0;
};

/// One piece of a job, to be registered by one thread.
struct Task {
    Lane* lane = nullptr;
    RegistrationJob* job = nullptr;
    std::size_t piece = 0;
};

/// Assigns the pieces of all jobs to threads; each piece is one memory registration. Thread safe.
class Scheduler {
  public:
    explicit Scheduler(std::span<RegistrationJob* const> jobs) : jobs_(jobs) {
        for (RegistrationJob* const job : jobs) {
            const ibv_device* const nic = job->maker.pd->native()->context->device;
            auto lane = std::ranges::find(lanes_, nic, &Lane::nic);
            if (lane == lanes_.end()) {
                lane = lanes_.insert(lane, {.nic = nic});
            }
            lane->jobs.push_back(job);
        }
    }

    [[nodiscard]] std::size_t lanes() const noexcept { return lanes_.size(); }
    /// Returns the number of bytes to register on the NIC that has the most bytes to register.
    [[nodiscard]] std::size_t most_bytes() const;

    /// Registers pieces until no piece is left, or until a registration of any thread throws an
    /// exception other than Error.
    void work() noexcept {
        const CancellationDisabled uncancelled; // Verbs may call a cancellation point.
        for (Task task = next({}); task.job != nullptr; task = next(task)) {
            try {
                // No lock is needed, because only this thread writes the region of this piece.
                register_piece(*task.job, task.piece);
            } catch (Error& error) {
                const std::lock_guard lock(mutex_);
                failed_ = true;
                task.job->fail(task.piece, std::move(error));
            } catch (...) {
                const std::lock_guard lock(mutex_);
                exception_ = std::current_exception();
            }
        }
    }
    void rethrow() const {
        if (exception_ != nullptr) {
            std::rethrow_exception(exception_);
        }
    }

  private:
    /// Returns the next task of this thread. If no work is left, the returned task has no job.
    /// @param done  the previous task of this thread
    [[nodiscard]] Task next(const Task& done) noexcept;
    /// Returns true if @p job need not be continued: it has failed, or another job of the same
    /// range has failed with an error for which RegistrationJob::ends_path() is true. Only jobs
    /// that stand before @p job in `jobs_` are checked.
    [[nodiscard]] bool is_cancelled(const RegistrationJob& job) const noexcept;
    /// Skips cancelled jobs, and jobs whose pieces have all been started. Returns true if a piece
    /// is left to register.
    [[nodiscard]] bool has_piece(Lane& lane) const noexcept;

    std::span<RegistrationJob* const> jobs_;
    std::mutex mutex_;
    std::vector<Lane> lanes_ = {};
    bool failed_ = false;
    std::exception_ptr exception_ = nullptr;
};

std::size_t Scheduler::most_bytes() const {
    std::size_t most = 0;
    for (const Lane& lane : lanes_) {
        std::size_t bytes = 0;
        for (const RegistrationJob* const job : lane.jobs) {
            const RangePiece last = job->pieces[job->pieces.count() - 1];
            const std::size_t length = last.offset + last.length;
            bytes += std::min(length, std::numeric_limits<std::size_t>::max() - bytes);
        }
        most = std::max(most, bytes);
    }
    return most;
}

bool Scheduler::is_cancelled(const RegistrationJob& job) const noexcept {
    if (!failed_) {
        return false;
    }
    for (const RegistrationJob* const other : jobs_) {
        if (other == &job) {
            break;
        }
        if (other->range == job.range && other->error && other->ends_path()) {
            return true;
        }
    }
    return job.error.has_value();
}

bool Scheduler::has_piece(Lane& lane) const noexcept {
    while (lane.job < lane.jobs.size()) {
        const RegistrationJob& job = *lane.jobs[lane.job];
        if (lane.piece < job.pieces.count() && !is_cancelled(job)) {
            return true;
        }
        ++lane.job;
        lane.piece = 0;
    }
    return false;
}

Task Scheduler::next(const Task& done) noexcept {
    const std::lock_guard lock(mutex_);
    if (done.lane != nullptr) {
        --done.lane->active;
    }
    if (exception_ != nullptr) {
        return {};
    }
    // The loop selects the NIC on which the fewest threads register. Each NIC gets one thread
    // before any NIC gets two threads.
    Lane* best = nullptr;
    for (Lane& lane : lanes_) {
        if ((best == nullptr || lane.active < best->active) && has_piece(lane)) {
            best = &lane;
        }
    }
    if (best == nullptr) {
        return {};
    }
    ++best->active;
    return {.lane = best, .job = best->jobs[best->job], .piece = best->piece++};
}

/// Blocks all signals in this thread while the object exists. New threads inherit the signal mask,
/// so the new threads do not run signal handlers of the program.
class SignalsBlocked {
  public:
    SignalsBlocked() noexcept {
        sigset_t all{};
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

  private:
    sigset_t before_{};
};

/// Threads that run the tasks of a scheduler. The destructor waits until the threads have ended.
class Workers {
  public:
    Workers(Scheduler& scheduler, std::size_t count) {
        threads_.reserve(count);
        const SignalsBlocked blocked;
        try {
            for (std::size_t i = 0; i < count; ++i) {
                threads_.emplace_back([&scheduler] { scheduler.work(); });
            }
        } catch (const std::exception&) {
            // If no further thread can be created, or there is no memory for one, the existing
            // threads register all pieces.
        }
    }
    ~Workers() {
        const CancellationDisabled uncancelled; // Waiting for a thread is a cancellation point.
        for (std::thread& thread : threads_) {
            thread.join();
        }
    }
    Workers(const Workers&) = delete;
    Workers& operator=(const Workers&) = delete;

  private:
    std::vector<std::thread> threads_;
};

} // namespace

void RegistrationJob::fail(std::size_t piece, Error&& reason) noexcept {
    // If several pieces fail, the error of the failed piece with the lowest index is kept. Pieces
    // are started in order, so all pieces before a failed piece have been started.
    if (!error || piece < failed_piece) {
        error.emplace(std::move(reason));
        failed_piece = piece;
    }
}

bool RegistrationJob::ends_path() const noexcept {
    assert(error);
    return last_mapping || !refuses_mapping(error->error());
}

void run_jobs(std::span<RegistrationJob* const> jobs, unsigned threads) {
    std::size_t pieces = 0;
    for (RegistrationJob* const job : jobs) {
        job->regions.resize(job->pieces.count());
        pieces += job->pieces.count();
    }
    if (pieces == 1) {
        try {
            register_piece(*jobs.front(), 0);
        } catch (Error& error) {
            jobs.front()->fail(0, std::move(error));
        }
        return;
    }
    Scheduler scheduler(jobs);
    std::size_t wanted = threads;
    if (threads == 0) {
        wanted = scheduler.most_bytes() >= least_parallel_bytes
                     ? std::min(scheduler.lanes(), most_default_threads)
                     : 1;
    }
    {
        const Workers workers(scheduler, std::min(wanted, pieces) - 1);
        scheduler.work();
    }
    scheduler.rethrow();
}

} // namespace rdmabuf::detail

#include "worker/backend/cpu/host_stream.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/support/mutex.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/affinity.h"

namespace paceline {
namespace {

int64_t ClockNs(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The best of a few tries: the two clocks are read one after the other, and the thread may be
// preempted in between.
int64_t RealtimeMinusMonotonicNs() {
  int64_t best_gap_ns = INT64_MAX;
  int64_t offset_ns = 0;
  for (int i = 0; i < 5; ++i) {
    const int64_t before_ns = ClockNs(CLOCK_MONOTONIC);
    const int64_t realtime_ns = ClockNs(CLOCK_REALTIME);
    const int64_t gap_ns = ClockNs(CLOCK_MONOTONIC) - before_ns;
    if (gap_ns < best_gap_ns) {
      best_gap_ns = gap_ns;
      offset_ns = realtime_ns - before_ns - gap_ns / 2;
    }
  }
  return offset_ns;
}

absl::Status NotAHostEvent() {
  return absl::InvalidArgumentError(
      "the event is not the CPU backend's: create it with the backend that created the stream");
}

}  // namespace

int64_t HostUnixNs() {
  static const int64_t offset_ns = RealtimeMinusMonotonicNs();
  return ClockNs(CLOCK_MONOTONIC) + offset_ns;
}

namespace internal {

int64_t HostEventState::Issue() {
  MutexLock lock(&mu_);
  pending_.push_back(++issued_);
  return issued_;
}

int64_t HostEventState::latest() const {
  MutexLock lock(&mu_);
  return issued_;
}

bool HostEventState::Pending(int64_t ticket) const {
  return std::find(pending_.begin(), pending_.end(), ticket) != pending_.end();
}

void HostEventState::Reach(int64_t ticket, const absl::Status& status) {
  const int64_t now_ns = HostUnixNs();
  {
    MutexLock lock(&mu_);
    pending_.erase(std::find(pending_.begin(), pending_.end(), ticket));
    if (ticket > newest_reached_) {
      newest_reached_ = ticket;
      newest_unix_ns_ = now_ns;
    }
    if (status_.ok()) status_ = status;
  }
  changed_.NotifyAll();
}

absl::Status HostEventState::Await(int64_t ticket, absl::Time deadline,
                                   const std::function<bool()>& interrupted) {
  MutexLock lock(&mu_);
  while (Pending(ticket)) {
    if (interrupted != nullptr && interrupted()) return absl::CancelledError("wait interrupted");
    if (!changed_.WaitUntil(&mu_, deadline) && Pending(ticket)) {
      if (absl::Now() < deadline) continue;
      return absl::DeadlineExceededError("event not reached");
    }
  }
  return status_;
}

void HostEventState::Interrupt() {
  // Under the mutex: the waiter is then either before its check or inside the wait.
  MutexLock lock(&mu_);
  changed_.NotifyAll();
}

absl::StatusOr<int64_t> HostEventState::LatestUnixNs() const {
  MutexLock lock(&mu_);
  if (issued_ == 0) return absl::FailedPreconditionError("the event was never recorded");
  if (newest_reached_ != issued_) {
    return absl::FailedPreconditionError("the event's latest Record has not been reached");
  }
  return newest_unix_ns_;
}

}  // namespace internal

absl::Status HostEvent::WaitReached(absl::Time deadline) {
  const int64_t ticket = state_->latest();
  if (ticket == 0) return absl::OkStatus();
  return state_->Await(ticket, deadline, nullptr);
}

HostStream::HostStream(HostStreamOptions options)
    : options_(std::move(options)), thread_([this] { Loop(); }) {}

HostStream::~HostStream() {
  Abort(absl::CancelledError(absl::StrCat("stream ", name(), " is destroyed")));
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  not_empty_.NotifyOne();
  thread_.join();
}

absl::Status HostStream::status() const {
  MutexLock lock(&mu_);
  return status_;
}

void HostStream::Fail(const absl::Status& status) {
  std::shared_ptr<internal::HostEventState> waiting_for;
  {
    MutexLock lock(&mu_);
    if (status_.ok()) status_ = status;
    waiting_for = waiting_for_;
  }
  if (waiting_for != nullptr) waiting_for->Interrupt();
}

void HostStream::Enqueue(Task task) {
  bool wake;
  {
    MutexLock lock(&mu_);
    queue_.push_back(std::move(task));
    wake = idle_;
    idle_ = false;
  }
  if (wake) not_empty_.NotifyOne();
}

// Once the stream has failed, the calls return the failure; Records are still queued, because who
// waits for them must learn of it.
absl::Status HostStream::Wait(Event& event) {
  HostEvent* host_event = dynamic_cast<HostEvent*>(&event);
  if (host_event == nullptr) return NotAHostEvent();
  const int64_t ticket = host_event->state_->latest();
  if (ticket == 0) return status();
  Enqueue({Task::Kind::kWait, ticket, nullptr, host_event->state_});
  return status();
}

absl::Status HostStream::Record(Event& event) {
  HostEvent* host_event = dynamic_cast<HostEvent*>(&event);
  if (host_event == nullptr) return NotAHostEvent();
  const int64_t ticket = host_event->state_->Issue();
  Enqueue({Task::Kind::kRecord, ticket, nullptr, host_event->state_});
  return status();
}

absl::Status HostStream::RunOnHost(std::function<absl::Status()> work) {
  Enqueue({Task::Kind::kWork, 0, std::move(work), nullptr});
  return status();
}

absl::Status HostStream::Synchronize(absl::Time deadline) {
  HostEvent reached;
  Record(reached).IgnoreError();  // A failure comes back from the wait.
  absl::Status status = reached.WaitReached(deadline);
  if (absl::IsDeadlineExceeded(status) && !reached.UnixNs().ok()) {
    return absl::DeadlineExceededError(
        absl::StrCat("stream ", name(), " did not finish its work in time"));
  }
  return status;
}

void HostStream::Abort(const absl::Status& cause) { Fail(cause); }

absl::Status HostStream::WaitForEvent(const Task& task) {
  {
    MutexLock lock(&mu_);
    if (!status_.ok()) return status_;
    waiting_for_ = task.event;
  }
  absl::Status result =
      task.event->Await(task.ticket, absl::InfiniteFuture(), [this] { return !status().ok(); });
  MutexLock lock(&mu_);
  waiting_for_ = nullptr;
  return status_.ok() ? result : status_;
}

void HostStream::Loop() {
  pthread_setname_np(pthread_self(), name().substr(0, 15).c_str());
  if (!options_.cores.empty()) {
    absl::Status pinned = PinThisThread(options_.cores);
    if (!pinned.ok()) Fail(pinned);
  }
  std::vector<Task> batch;
  while (true) {
    {
      MutexLock lock(&mu_);
      while (queue_.empty() && !stopping_) {
        idle_ = true;
        not_empty_.WaitFor(&mu_, absl::Hours(1));
      }
      idle_ = false;
      if (queue_.empty()) return;
      batch.swap(queue_);  // One lock for all that has gathered; both vectors keep their memory.
    }
    for (Task& task : batch) {
      switch (task.kind) {
        case Task::Kind::kWork: {
          if (!status().ok()) break;
          absl::Status done;
          try {
            done = task.work();
          } catch (const std::exception& exception) {
            done = absl::InternalError(absl::StrCat(name(), ": exception: ", exception.what()));
          }
          if (!done.ok()) Fail(done);
          break;
        }
        case Task::Kind::kRecord:
          task.event->Reach(task.ticket, status());
          break;
        case Task::Kind::kWait: {
          absl::Status reached = WaitForEvent(task);
          if (!reached.ok()) Fail(reached);
          break;
        }
      }
      // At once, not with the batch: a task may own what its peers wait to be released.
      task = Task();
    }
    batch.clear();
  }
}

}  // namespace paceline

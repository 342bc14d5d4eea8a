// A stream whose device is the host: a thread that runs its work in order. And its events.
//
//   HostStream compute({"compute"}), communication({"comm 0"});
//   HostEvent ready;
//   compute.RunOnHost([] { return Backward(); });
//   compute.Record(ready);
//   communication.Wait(ready);  // Ordered on the streams' threads; the caller does not block.
//   absl::Status status = communication.Synchronize(absl::Now() + absl::Seconds(30));
//
// Neither waiting nor idling spins: two ranks on two cores need both for computing. Handing a task
// to a busy stream costs a lock and a queue slot; only an idle stream's thread is woken.
//
// A task that fails makes the stream fail for good: later tasks are dropped, and every later Record
// passes the failure on to who waits for it. A failing stream thus stops all that depend on it.
//
// Thread-safety: all methods of both classes may be called from any thread. Times are int64
// nanoseconds of CLOCK_REALTIME (HostUnixNs).
#ifndef PACELINE_WORKER_BACKEND_CPU_HOST_STREAM_H_
#define PACELINE_WORKER_BACKEND_CPU_HOST_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/support/mutex.h"
#include "worker/backend/backend.h"

namespace paceline {

// Nanoseconds since the Unix epoch: CLOCK_MONOTONIC plus its distance from CLOCK_REALTIME when the
// process asked first. Someone setting the time of day therefore never bends a measured duration.
int64_t HostUnixNs();

namespace internal {

// What streams share of an event; outlives the event while tasks refer to it.
class HostEventState {
 public:
  // A new Record: its number, counted from 1.
  int64_t Issue();
  // The latest Record's number; 0 if there was none.
  int64_t latest() const;
  // The stream arrived at the Record numbered `ticket` with `status`.
  void Reach(int64_t ticket, const absl::Status& status);
  // Waits for that Record. `interrupted` is checked whenever Interrupt() is called.
  absl::Status Await(int64_t ticket, absl::Time deadline, const std::function<bool()>& interrupted);
  void Interrupt();
  absl::StatusOr<int64_t> LatestUnixNs() const;

 private:
  bool Pending(int64_t ticket) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  CondVar changed_;
  int64_t issued_ ABSL_GUARDED_BY(mu_) = 0;
  // Records that streams have not arrived at yet: hardly ever more than two.
  std::vector<int64_t> pending_ ABSL_GUARDED_BY(mu_);
  int64_t newest_reached_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t newest_unix_ns_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);  // First failure of a stream that recorded it.
};

}  // namespace internal

class HostEvent : public Event {
 public:
  HostEvent() : state_(std::make_shared<internal::HostEventState>()) {}

  absl::Status WaitReached(absl::Time deadline) override;
  // When the latest Record was reached. FAILED_PRECONDITION if it was not yet.
  absl::StatusOr<int64_t> UnixNs() const { return state_->LatestUnixNs(); }

 private:
  friend class HostStream;
  const std::shared_ptr<internal::HostEventState> state_;
};

struct HostStreamOptions {
  std::string name;        // The thread's, too (its first 15 characters).
  std::vector<int> cores;  // Logical cores the thread may run on. Empty: as its creator.
};

// Destroying a stream drops the work that has not begun and waits for the task that has.
class HostStream : public Stream {
 public:
  explicit HostStream(HostStreamOptions options);
  ~HostStream() override;
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  const std::string& name() const override { return options_.name; }
  absl::Status Wait(Event& event) override;
  absl::Status Record(Event& event) override;
  absl::Status RunOnHost(std::function<absl::Status()> work) override;
  absl::Status Synchronize(absl::Time deadline) override;
  void Abort(const absl::Status& cause) override;

 private:
  // Work, or (if `event` is set) a Record or Wait of it.
  struct Task {
    enum class Kind { kWork, kRecord, kWait };
    Kind kind = Kind::kWork;
    int64_t ticket = 0;
    std::function<absl::Status()> work;
    std::shared_ptr<internal::HostEventState> event;
  };

  void Enqueue(Task task);
  void Loop();
  absl::Status WaitForEvent(const Task& task);
  absl::Status status() const;
  void Fail(const absl::Status& status);

  const HostStreamOptions options_;
  mutable Mutex mu_;
  CondVar not_empty_;
  std::vector<Task> queue_ ABSL_GUARDED_BY(mu_);
  bool idle_ ABSL_GUARDED_BY(mu_) = false;  // The thread sleeps and must be woken.
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);  // First failure.
  // What the thread is blocked on, so that Abort can wake it.
  std::shared_ptr<internal::HostEventState> waiting_for_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace paceline

#endif  // PACELINE_WORKER_BACKEND_CPU_HOST_STREAM_H_

#include "worker/runner/trial_runner.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "models/networks/network.h"
#include "models/schedule/compiler.h"
#include "models/schedule/schedule.h"
#include "models/stats/stats.h"
#include "worker/input/input_pipeline.h"
#include "worker/runner/connections.h"
#include "worker/runner/iteration_executor.h"
#include "worker/runner/machine_load.h"
#include "worker/runner/phase_accounting.h"
#include "worker/runner/stopping_rule.h"

namespace paceline {
namespace {

int64_t UnixNs() { return absl::ToUnixNanos(absl::Now()); }

double ToSeconds(int64_t ns) { return ns * 1e-9; }

// Peak resident memory of this process since ResetPeakMemory, in bytes; 0 where the kernel does not
// tell.
int64_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    int64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  return 0;
}

// Workers run one trial after another in one process: without this a small trial would report the
// peak of a big one before it.
void ResetPeakMemory() { std::ofstream("/proc/self/clear_refs") << "5"; }

// One attempt of one rank. Members are built up step by step and destroyed in reverse order, so
// that streams stop before what they use goes away.
class Attempt {
 public:
  Attempt(Backend& backend, const TrialRunnerOptions& options, const v1::RankAssignment& assignment,
          RendezvousStore& store, CancelToken& cancel, const ProgressSink& progress,
          v1::TrialResult& result)
      : backend_(backend),
        options_(options),
        assignment_(assignment),
        trial_(assignment.trial()),
        store_(store),
        cancel_(cancel),
        progress_(progress),
        result_(result),
        deadline_(absl::Now() + absl::Seconds(assignment.deadline_seconds())) {}

  void Run() {
    Report("preparing");
    absl::Status status = Prepare();
    if (status.ok()) {
      Report("connecting");
      status = Connect();
    }
    if (status.ok()) {
      measuring_ = true;
      status = Measure();
      if (status.ok()) measuring_ = false;
    }
    if (status.ok()) {
      Report("finishing");
      status = Finish();
    }
    // A cancelled wait says "aborted" in many words: the reason for the cancellation is the cause.
    if (!status.ok() && !cancel_.cause().ok()) status = cancel_.cause();
    result_.set_status(Classify(status));
    if (!status.ok()) {
      result_.set_cause(absl::StrCat("rank ", assignment_.rank(), ": ", status.message()));
    }
    FillSamples();
  }

 private:
  v1::TrialStatus Classify(const absl::Status& status) const {
    // The configuration itself was accepted: what is invalid now is the data.
    const bool data_error = reading_failed_ || (measuring_ && absl::IsInvalidArgument(status));
    return data_error ? v1::TRIAL_STATUS_INPUT_ERROR : TrialStatusFor(status);
  }

  absl::Status Prepare() {
    if (trial_.engine() != v1::ENGINE_NATIVE) {
      return absl::UnimplementedError(absl::StrCat("engine ", v1::Engine_Name(trial_.engine()),
                                                   " has no driver on this worker"));
    }
    const std::vector<v1::Precision> precisions = backend_.Precisions();
    if (std::find(precisions.begin(), precisions.end(), trial_.precision()) == precisions.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("this device does not support ", v1::Precision_Name(trial_.precision())));
    }
    auto network = InferShapes(trial_.network());
    if (!network.ok()) return network.status();
    network_ = *std::move(network);
    for (const ShapedLayer& layer : network_.layers) layer_names_.push_back(layer.layer.name());

    auto schedule =
        CompileSchedule(network_, trial_.policy(), trial_.cluster(), trial_.batch_per_device());
    if (!schedule.ok()) return schedule.status();
    schedule_ = *std::move(schedule);
    result_.set_schedule_hash(ScheduleHash(schedule_));

    EngineOptions engine_options;
    engine_options.batch = trial_.batch_per_device();
    engine_options.precision = trial_.precision();
    engine_options.training = trial_.training();
    engine_options.tensor_order = schedule_.tensor_order;
    engine_options.rank = assignment_.rank();
    auto engine = backend_.CreateEngine(network_, engine_options);
    if (!engine.ok()) return engine.status();
    engine_ = *std::move(engine);

    InputOptions input_options;
    input_options.image = trial_.network().input();
    input_options.classes = trial_.network().classes();
    input_options.batch = trial_.batch_per_device();
    input_options.rank = assignment_.rank();
    input_options.ranks = assignment_.ranks();
    input_options.seed = trial_.training().seed();
    const int threads = trial_.policy().input().decode_threads_per_device();
    input_options.decode_threads = threads > 0 ? threads : options_.decode_threads;
    input_options.prefetch_batches = trial_.policy().input().prefetch_batches();
    auto input = CreateInputPipeline(trial_.input(), input_options);
    if (!input.ok()) {
      reading_failed_ = true;
      return input.status();
    }
    input_ = *std::move(input);
    return absl::OkStatus();
  }

  absl::Status Connect() {
    RankInfo rank;
    rank.rank = assignment_.rank();
    rank.ranks = assignment_.ranks();
    rank.data_address = assignment_.peer_addresses(assignment_.rank());
    rank.timeout = options_.peer_timeout;

    ExecutorParts parts;
    parts.backend = &backend_;
    parts.schedule = &schedule_;
    parts.engine = engine_.get();
    parts.input = input_.get();
    parts.rank = assignment_.rank();
    parts.deadline = deadline_;
    if (rank.ranks > 1) {
      absl::Status status = CompareSchedules();
      if (!status.ok()) return status;
    }
    auto connections =
        paceline::Connect(backend_, schedule_, *engine_, rank, trial_.training(), store_);
    if (!connections.ok()) return connections.status();
    connections_ = *std::move(connections);
    for (const auto& communicator : connections_.communicators) {
      parts.communicators.push_back(communicator.get());
    }
    parts.server = connections_.server.get();
    auto executor = IterationExecutor::Create(parts);
    if (!executor.ok()) return executor.status();
    executor_ = *std::move(executor);
    abort_ = cancel_.OnCancel([this](const absl::Status& cause) {
      input_->Cancel();
      executor_->Abort(cause);
    });
    return absl::OkStatus();
  }

  // Ranks that would execute different schedules would wait for each other for ever.
  absl::Status CompareSchedules() {
    auto reference = Exchange("schedule", result_.schedule_hash());
    if (!reference.ok()) return reference.status();
    for (size_t rank = 0; rank < reference->size(); ++rank) {
      if ((*reference)[rank] != result_.schedule_hash()) {
        return absl::FailedPreconditionError(
            absl::StrCat("rank ", rank, " compiled another schedule than rank ", assignment_.rank(),
                         ": use the same Paceline version on all hosts"));
      }
    }
    return absl::OkStatus();
  }

  // Every rank publishes a value and reads everybody's, in rank order.
  absl::StatusOr<std::vector<std::string>> Exchange(const std::string& what,
                                                    const std::string& value) {
    absl::Status status = store_.Put(absl::StrCat(what, "/", assignment_.rank()), value);
    if (!status.ok()) return status;
    std::vector<std::string> values;
    const absl::Time until = std::min(deadline_, absl::Now() + options_.peer_timeout);
    for (int rank = 0; rank < assignment_.ranks(); ++rank) {
      auto other = store_.Get(absl::StrCat(what, "/", rank), until);
      if (!other.ok()) return other.status();
      values.push_back(*std::move(other));
    }
    return values;
  }

  // Enqueues iterations until the stopping rule says enough. Rank 0 decides; the others read its
  // decision while their latest iterations still run, so that nobody's pipeline drains.
  absl::Status Measure() {
    const StoppingRule rule(trial_.measurement());
    const int warmup = trial_.measurement().min_warmup_iterations();
    int run_until = rule.FirstBlock();
    absl::Time measuring_since = absl::Now();
    MachineLoad load;
    result_.set_stop_reason(v1::TrialResult::STOP_REASON_FAILED);
    for (int enqueued = 0;;) {
      if (enqueued == run_until) {
        auto decision = AgreeToGoOn(rule, enqueued, measuring_since);
        if (!decision.ok()) return decision.status();
        if (decision->stop) {
          result_.set_stop_reason(decision->reason);
          break;
        }
        run_until = decision->run_until;
      }
      absl::Status status = executor_->Enqueue();
      if (!status.ok()) return status;
      ++enqueued;
      if (executor_->in_flight() == IterationExecutor::kMaxInFlight) {
        status = CollectOne();
        if (!status.ok()) return status;
        if (static_cast<int>(times_.size()) == warmup) {
          measuring_since = absl::Now();
          load.Start();
        }
        ReportIterations(run_until);
      }
    }
    while (executor_->in_flight() > 0) {
      absl::Status status = CollectOne();
      if (!status.ok()) return status;
    }
    result_.mutable_machine()->set_other_load(load.OtherLoad());
    return absl::OkStatus();
  }

  absl::Status CollectOne() {
    auto times = executor_->Collect(deadline_);
    if (!times.ok()) return times.status();
    if (!std::isfinite(times->loss)) {
      return absl::OutOfRangeError(absl::StrCat("the loss is not finite after iteration ",
                                                times_.size(), ": lower the learning rate"));
    }
    times_.push_back(*std::move(times));
    return absl::OkStatus();
  }

  absl::StatusOr<StopDecision> AgreeToGoOn(const StoppingRule& rule, int enqueued,
                                           absl::Time measuring_since) {
    const std::string key = absl::StrCat("run_until/", enqueued);
    if (assignment_.rank() == 0) {
      std::vector<double> seconds;
      const int first = FirstComputeOperation(schedule_);
      for (size_t k = 0; k + 1 < times_.size(); ++k) {
        seconds.push_back(ToSeconds(times_[k + 1].operations[first].begin_unix_ns -
                                    times_[k].operations[first].begin_unix_ns));
      }
      const StopDecision decision =
          rule.Decide(seconds, enqueued, absl::ToDoubleSeconds(absl::Now() - measuring_since));
      if (assignment_.ranks() > 1) {
        absl::Status status =
            store_.Put(key, decision.stop ? absl::StrCat("stop ", static_cast<int>(decision.reason))
                                          : absl::StrCat("go ", decision.run_until));
        if (!status.ok()) return status;
      }
      return decision;
    }
    auto text = store_.Get(key, deadline_);
    if (!text.ok()) return text.status();
    StopDecision decision;
    int number = 0;
    const size_t space = text->find(' ');
    if (space == std::string::npos || !absl::SimpleAtoi(text->substr(space + 1), &number)) {
      return absl::InternalError(absl::StrCat("malformed decision of rank 0: '", *text, "'"));
    }
    decision.stop = absl::string_view(*text).substr(0, space) == "stop";
    if (decision.stop) {
      decision.reason = static_cast<v1::TrialResult::StopReason>(number);
    } else {
      decision.run_until = number;
    }
    return decision;
  }

  // Brings all ranks to the newest weights and compares them: ranks that never exchanged gradients
  // must not look like perfect scaling.
  absl::Status Finish() {
    absl::Status status = executor_->Finish(deadline_);
    if (!status.ok()) return status;
    result_.set_weights_checksum(engine_->WeightsChecksum());
    if (assignment_.ranks() == 1) return absl::OkStatus();
    auto checksums = Exchange("checksum", absl::StrCat(result_.weights_checksum()));
    if (!checksums.ok()) return checksums.status();
    for (size_t rank = 0; rank < checksums->size(); ++rank) {
      if ((*checksums)[rank] != absl::StrCat(result_.weights_checksum())) {
        return absl::DataLossError(
            absl::StrCat("ranks ", assignment_.rank(), " and ", rank,
                         " hold different weights after the last iteration"));
      }
    }
    return absl::OkStatus();
  }

  void FillSamples() {
    if (engine_ != nullptr) *result_.mutable_memory() = engine_->Memory();
    if (executor_ != nullptr) {
      result_.mutable_memory()->set_communication_bytes(result_.memory().communication_bytes() +
                                                        executor_->buffer_bytes());
    }
    if (input_ != nullptr) {
      result_.mutable_memory()->set_input_bytes(input_->MemoryBytes());
      *result_.mutable_input_counters() = input_->Counters();
    }
    result_.mutable_memory()->set_peak_resident_bytes(PeakResidentBytes());

    const std::vector<v1::IterationSample> samples = AccountPhases(schedule_, times_);
    std::vector<double> seconds;
    for (const v1::IterationSample& sample : samples) {
      *result_.add_iterations() = sample;
      seconds.push_back(ToSeconds(sample.duration_ns()));
    }
    const int count = static_cast<int>(samples.size());
    const int fixed = std::min<int>(trial_.measurement().min_warmup_iterations(), count);
    const int warmup = fixed + WarmupLength(absl::MakeConstSpan(seconds).subspan(fixed));
    result_.set_warmup_iterations(warmup);
    if (warmup >= count) return;
    for (v1::OperationStatistics& statistics :
         SummarizeOperations(schedule_, layer_names_, times_, warmup, count)) {
      *result_.add_operations() = std::move(statistics);
    }
    const double median = Median(absl::MakeConstSpan(seconds).subspan(warmup));
    int typical = warmup;
    for (int k = warmup; k < count; ++k) {
      if (std::abs(seconds[k] - median) < std::abs(seconds[typical] - median)) typical = k;
    }
    for (v1::OperationSpan& span : TraceIteration(schedule_, layer_names_, times_[typical])) {
      *result_.add_trace() = std::move(span);
    }
  }

  void Report(const std::string& step) {
    v1::TrialProgress progress;
    progress.set_step(step);
    progress_(progress);
  }

  void ReportIterations(int run_until) {
    v1::TrialProgress progress;
    const int done = static_cast<int>(times_.size());
    progress.set_step(done < trial_.measurement().min_warmup_iterations() ? "warming up"
                                                                          : "measuring");
    progress.set_iterations_done(done);
    progress.set_iterations_planned(run_until);
    if (done >= 2) {
      const int first = FirstComputeOperation(schedule_);
      const double seconds = ToSeconds(times_[done - 1].operations[first].begin_unix_ns -
                                       times_[done - 2].operations[first].begin_unix_ns);
      if (seconds > 0) progress.set_samples_per_second(trial_.batch_per_device() / seconds);
    }
    progress_(progress);
  }

  Backend& backend_;
  const TrialRunnerOptions& options_;
  const v1::RankAssignment& assignment_;
  const v1::Trial& trial_;
  RendezvousStore& store_;
  CancelToken& cancel_;
  const ProgressSink& progress_;
  v1::TrialResult& result_;
  const absl::Time deadline_;

  ShapedNetwork network_;
  std::vector<std::string> layer_names_;
  IterationSchedule schedule_;
  std::unique_ptr<LayerEngine> engine_;
  std::unique_ptr<InputPipeline> input_;
  Connections connections_;
  std::unique_ptr<IterationExecutor> executor_;
  CancelToken::Registration abort_;
  std::vector<IterationTimes> times_;
  bool measuring_ = false;       // Measure was entered and has not succeeded.
  bool reading_failed_ = false;  // The data set could not be opened.
};

}  // namespace

v1::TrialResult TrialRunner::Run(const v1::RankAssignment& assignment, RendezvousStore& store,
                                 CancelToken& cancel, const ProgressSink& progress) {
  v1::TrialResult result;
  *result.mutable_trial() = assignment.trial();
  result.set_attempt(assignment.attempt());
  result.set_rank(assignment.rank());
  result.set_worker_id(options_.worker_id);
  result.set_start_unix_ns(UnixNs());
  const absl::Status described = backend_.Describe(*result.mutable_machine());
  if (described.ok()) {
    ResetPeakMemory();
    Attempt(backend_, options_, assignment, store, cancel, progress, result).Run();
  } else {
    result.set_status(TrialStatusFor(described));
    result.set_cause(absl::StrCat("rank ", assignment.rank(), ": ", described.message()));
  }
  result.set_end_unix_ns(UnixNs());
  return result;
}

v1::TrialStatus TrialStatusFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return v1::TRIAL_STATUS_OK;
    case absl::StatusCode::kResourceExhausted:
      return v1::TRIAL_STATUS_OUT_OF_MEMORY;
    case absl::StatusCode::kInvalidArgument:
      return v1::TRIAL_STATUS_INVALID;
    case absl::StatusCode::kUnimplemented:
      return v1::TRIAL_STATUS_NOT_INSTALLED;
    case absl::StatusCode::kOutOfRange:
      return v1::TRIAL_STATUS_DIVERGED;
    case absl::StatusCode::kDataLoss:
      return v1::TRIAL_STATUS_REPLICAS_DIVERGED;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
      return v1::TRIAL_STATUS_PEER_FAILED;
    case absl::StatusCode::kDeadlineExceeded:
      return v1::TRIAL_STATUS_TIMED_OUT;
    case absl::StatusCode::kCancelled:
      return v1::TRIAL_STATUS_CANCELLED;
    default:
      return v1::TRIAL_STATUS_INTERNAL;
  }
}

}  // namespace paceline

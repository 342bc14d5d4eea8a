// A backend for tests of what sits above: real streams and events, an engine that trains nothing
// but gives predictable gradients, and ranks that meet in memory. Durations and failures are set by
// hand.
//
//   auto world = std::make_shared<FakeWorld>();       // One for all ranks of a trial.
//   FakeBackendOptions options;
//   options.operation_seconds["forward"] = 0.001;     // Every layer's forward sleeps 1 ms.
//   options.before_operation = [](absl::string_view operation, int layer) {
//     return layer == 7 ? absl::InternalError("layer 7") : absl::OkStatus();
//   };
//   std::unique_ptr<Backend> backend = CreateFakeBackend(world, options);
//
// The gradient of element i of tensor t at rank r's k-th backward pass (from 0) is
// FakeGradient(r, k, t, i): small multiples of 1/8, so that sums of a few ranks are exact and a
// wrong reduction shows. Weights start at FakeWeight(t, i). The layout is the canonical one,
// unpadded.
//
// Thread-safety: FakeWorld from any thread; the rest as Backend.
#ifndef PACELINE_WORKER_BACKEND_FAKE_FAKE_BACKEND_H_
#define PACELINE_WORKER_BACKEND_FAKE_FAKE_BACKEND_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/support/mutex.h"
#include "worker/backend/backend.h"

namespace paceline {

// Where the fake communicators and parameter servers of a trial's ranks meet.
class FakeWorld {
 public:
  struct Meeting;  // One collective operation.
  struct Server;   // One parameter server.

  FakeWorld();
  ~FakeWorld();

 private:
  friend class FakeCommunicator;
  friend class FakeParameterServer;

  Mutex mu_;
  CondVar changed_;
  std::map<std::string, std::shared_ptr<Meeting>> meetings_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<Server>> servers_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::set<int>> left_ ABSL_GUARDED_BY(mu_);   // Ranks, by communicator.
  std::map<std::string, absl::Status> broken_ ABSL_GUARDED_BY(mu_);  // By communicator.
};

struct FakeBackendOptions {
  // Time that an operation sleeps: "load_input", "forward", "backward", "update", "communication".
  std::map<std::string, double> operation_seconds;
  // Called on the stream's thread before each operation (named as above; layer -1 where there is
  // none). A failure fails the operation.
  std::function<absl::Status(absl::string_view operation, int layer)> before_operation;
  // Returned by CreateEngine if not OK (for example RESOURCE_EXHAUSTED).
  absl::Status create_engine_status;
  // Loss of the k-th forward pass (from 0). Default: 1 / (1 + k).
  std::function<double(int64_t iteration)> loss;
};

float FakeGradient(int rank, int64_t iteration, int tensor, int64_t element);
float FakeWeight(int tensor, int64_t element);

std::unique_ptr<Backend> CreateFakeBackend(std::shared_ptr<FakeWorld> world,
                                           FakeBackendOptions options = {});

}  // namespace paceline

#endif  // PACELINE_WORKER_BACKEND_FAKE_FAKE_BACKEND_H_

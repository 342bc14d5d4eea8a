// Helpers for tests of layer engines: a stream that works at once, values that need no files, and
// one engine with a batch to train on.
//
//   TestEngine test = TestEngine::Create(network, options);
//   test.Iterate();
//   test.engine->ReadGradient(0);
//
// Failures of the engine end the test program with the status. Not thread-safe.
#ifndef PACELINE_WORKER_BACKEND_CPU_ENGINE_TESTING_H_
#define PACELINE_WORKER_BACKEND_CPU_ENGINE_TESTING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "models/networks/network.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/onednn_engine.h"

namespace paceline {

// Runs everything inside the call.
class InlineStream : public Stream {
 public:
  const std::string& name() const override { return name_; }
  absl::Status Wait(Event&) override { return status_; }
  absl::Status Record(Event&) override { return status_; }
  absl::Status RunOnHost(std::function<absl::Status()> work) override {
    if (status_.ok()) status_ = work();
    return status_;
  }
  absl::Status Synchronize(absl::Time) override { return status_; }
  void Abort(const absl::Status& cause) override { status_ = cause; }

 private:
  std::string name_ = "inline";
  absl::Status status_;
};

// `count` values in [-1, 1): a hash (Murmur3's finaliser) of `stream` and the index, the same as
// `hashed` in tests/golden/pytorch/make_goldens.py.
std::vector<double> HashedValues(uint32_t stream, int64_t count);

// Weights of tensor `index` as make_goldens.py makes them.
std::vector<float> HashedWeights(const ShapedNetwork& network, int index);

// Batch of hashed pixels with labels (7 n + 3) mod classes.
HostBatch HashedBatch(const ShapedNetwork& network, int size, uint32_t stream = 1000000);

// Options with nothing left open: learning rate 0.01, momentum 0.9, weight decay 5e-4, seed 1,
// tensors in backward order.
EngineOptions TestOptions(const ShapedNetwork& network, int batch);

struct TestEngine {
  ShapedNetwork network;
  std::unique_ptr<LayerEngine> engine;
  HostBatch batch;
  InlineStream stream;
  std::vector<int> all_tensors;

  static std::unique_ptr<TestEngine> Create(const ShapedNetwork& network,
                                            const EngineOptions& options, const OneDnnOptions& cpu);
  void UseHashedWeights();
  void LoadAndForward();
  void Backward();
  void Update(float scale = 1);
  // All of the above. Returns the loss.
  double Iterate();
  std::vector<float> Weights(int tensor) const;
  std::vector<float> Gradient(int tensor) const;
};

}  // namespace paceline

#endif  // PACELINE_WORKER_BACKEND_CPU_ENGINE_TESTING_H_

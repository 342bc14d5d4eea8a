// The behaviour every backend owes the runner, as one test suite. A backend's test instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Fake, BackendConformanceTest, testing::Values(BackendMaker{[] {
//     auto world = std::make_shared<FakeWorld>();
//     return [world](int rank, int ranks) { return CreateFakeBackend(world); };
//   }}));
//
// Ranks are threads around an in-memory store, with different values on each rank, so that a wrong
// reduction shows.
#ifndef PACELINE_WORKER_BACKEND_CONFORMANCE_H_
#define PACELINE_WORKER_BACKEND_CONFORMANCE_H_

#include <functional>
#include <memory>

#include "gtest/gtest.h"
#include "worker/backend/backend.h"

namespace paceline {

// Makes the backend of one rank.
using RankBackendMaker = std::function<std::unique_ptr<Backend>(int rank, int ranks)>;
// Called once per trial.
using BackendMaker = std::function<RankBackendMaker()>;

class BackendConformanceTest : public testing::TestWithParam<BackendMaker> {};

}  // namespace paceline

#endif  // PACELINE_WORKER_BACKEND_CONFORMANCE_H_

#include <memory>

#include "gtest/gtest.h"
#include "worker/backend/backend.h"
#include "worker/backend/conformance.h"
#include "worker/backend/fake/fake_backend.h"

namespace paceline {
namespace {

INSTANTIATE_TEST_SUITE_P(Fake, BackendConformanceTest,
                         testing::Values(BackendMaker([]() -> RankBackendMaker {
                           auto world = std::make_shared<FakeWorld>();
                           return [world](int rank, int ranks) { return CreateFakeBackend(world); };
                         })));

}  // namespace
}  // namespace paceline

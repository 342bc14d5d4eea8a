#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "worker/backend/backend.h"
#include "worker/backend/conformance.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace paceline {
namespace {

INSTANTIATE_TEST_SUITE_P(Cpu, BackendConformanceTest,
                         testing::Values(BackendMaker([]() -> RankBackendMaker {
                           return [](int rank, int ranks) {
                             CpuBackendOptions options;
                             options.local_index = rank;
                             options.local_count = ranks;
                             auto backend = CreateCpuBackend(options);
                             EXPECT_TRUE(backend.ok()) << backend.status();
                             return *std::move(backend);
                           };
                         })));

}  // namespace
}  // namespace paceline

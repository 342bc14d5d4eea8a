// Every locked library compiles, links and runs: one call into each, so that a missing shared
// object, a wrong link order or a header of another version shows here and not in a feature's test.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "Eigen/Dense"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "ceres/ceres.h"
#include "dnnl.hpp"
#include "gloo/rendezvous/hash_store.h"
#include "gloo/transport/tcp/device.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "lmdb.h"
#include "nlopt.hpp"
#include "onnx/onnx.pb.h"
#include "sqlite3.h"
#include "turbojpeg.h"
#include "zlib.h"

namespace paceline {
namespace {

TEST(ThirdPartySmokeTest, AbseilFormats) {
  EXPECT_EQ(absl::StrCat("t=", absl::FormatDuration(absl::Milliseconds(1500))), "t=1.5s");
}

TEST(ThirdPartySmokeTest, GrpcServerListensAndAChannelConnects) {
  grpc::CallbackGenericService service;  // Answers every call with UNIMPLEMENTED.
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  auto channel =
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
  EXPECT_TRUE(
      channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(30)));
  server->Shutdown();
}

TEST(ThirdPartySmokeTest, OneDnnExecutesRelu) {
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  std::vector<float> values = {-1, 2, -3, 4};
  dnnl::memory::desc shape({4}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a);
  dnnl::memory memory(shape, engine, values.data());
  dnnl::eltwise_forward::desc relu(dnnl::prop_kind::forward_inference,
                                   dnnl::algorithm::eltwise_relu, shape, 0.0f, 0.0f);
  dnnl::eltwise_forward(dnnl::eltwise_forward::primitive_desc(relu, engine))
      .execute(stream, {{DNNL_ARG_SRC, memory}, {DNNL_ARG_DST, memory}});
  stream.wait();
  EXPECT_THAT(values, testing::ElementsAre(0, 2, 0, 4));
}

TEST(ThirdPartySmokeTest, GlooStoresAndOpensADevice) {
  gloo::rendezvous::HashStore store;
  store.set("key", {'v'});
  EXPECT_THAT(store.get("key"), testing::ElementsAre('v'));
  gloo::transport::tcp::attr attributes("127.0.0.1");
  EXPECT_NE(gloo::transport::tcp::CreateDevice(attributes), nullptr);
}

TEST(ThirdPartySmokeTest, SqliteAnswersAQuery) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(":memory:", &db), SQLITE_OK);
  sqlite3_stmt* statement = nullptr;
  ASSERT_EQ(sqlite3_prepare_v2(db, "SELECT 6 * 7", -1, &statement, nullptr), SQLITE_OK);
  ASSERT_EQ(sqlite3_step(statement), SQLITE_ROW);
  EXPECT_EQ(sqlite3_column_int(statement, 0), 42);
  sqlite3_finalize(statement);
  sqlite3_close(db);
}

TEST(ThirdPartySmokeTest, LmdbOpensAnEnvironment) {
  MDB_env* env = nullptr;
  ASSERT_EQ(mdb_env_create(&env), MDB_SUCCESS);
  EXPECT_EQ(mdb_env_open(env, testing::TempDir().c_str(), 0, 0644), MDB_SUCCESS);
  mdb_env_close(env);
}

TEST(ThirdPartySmokeTest, TurboJpegRoundTripsAnImage) {
  std::vector<unsigned char> grey(16 * 16 * 3, 128);
  tjhandle compressor = tjInitCompress();
  unsigned char* jpeg = nullptr;
  unsigned long jpeg_bytes = 0;  // NOLINT(google-runtime-int): the library's type.
  ASSERT_EQ(tjCompress2(compressor, grey.data(), 16, 0, 16, TJPF_RGB, &jpeg, &jpeg_bytes,
                        TJSAMP_420, 90, 0),
            0);
  std::vector<unsigned char> decoded(grey.size());
  tjhandle decompressor = tjInitDecompress();
  ASSERT_EQ(tjDecompress2(decompressor, jpeg, jpeg_bytes, decoded.data(), 16, 0, 16, TJPF_RGB, 0),
            0);
  EXPECT_NEAR(decoded[0], 128, 2);
  tjFree(jpeg);
  tjDestroy(compressor);
  tjDestroy(decompressor);
}

struct TenMinusX {
  template <typename T>
  bool operator()(const T* x, T* residual) const {
    residual[0] = 10.0 - x[0];
    return true;
  }
};

TEST(ThirdPartySmokeTest, CeresMinimises) {
  double x = 0.5;
  ceres::Problem problem;
  problem.AddResidualBlock(new ceres::AutoDiffCostFunction<TenMinusX, 1, 1>(new TenMinusX), nullptr,
                           &x);
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::DENSE_QR;
  ceres::Solver::Summary summary;
  ceres::Solve(options, &problem, &summary);
  EXPECT_NEAR(x, 10.0, 1e-6);
}

TEST(ThirdPartySmokeTest, NloptMinimises) {
  nlopt::opt optimizer(nlopt::LN_NELDERMEAD, 1);
  optimizer.set_min_objective(
      [](unsigned, const double* x, double*, void*) { return (x[0] - 3) * (x[0] - 3); }, nullptr);
  optimizer.set_xtol_rel(1e-9);
  std::vector<double> x = {0.0};
  double minimum = 0;
  optimizer.optimize(x, minimum);
  EXPECT_NEAR(x[0], 3.0, 1e-4);
}

TEST(ThirdPartySmokeTest, OnnxModelsParse) {
  onnx::ModelProto model;
  model.set_ir_version(onnx::IR_VERSION);
  onnx::ModelProto parsed;
  ASSERT_TRUE(parsed.ParseFromString(model.SerializeAsString()));
  EXPECT_EQ(parsed.ir_version(), onnx::IR_VERSION);
}

TEST(ThirdPartySmokeTest, EigenMultiplies) {
  Eigen::Matrix2d m;
  m << 1, 2, 3, 4;
  EXPECT_EQ((m * m)(1, 1), 22);
}

TEST(ThirdPartySmokeTest, ZlibChecksums) {
  EXPECT_EQ(crc32(0, reinterpret_cast<const Bytef*>("123456789"), 9), 0xcbf43926u);
}

}  // namespace
}  // namespace paceline

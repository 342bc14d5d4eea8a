#include "analysis/report/report.h"

#include <cctype>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "analysis/fit/fit.h"
#include "analysis/merge/merge.h"
#include "analysis/report/words.h"
#include "analysis/stats/statistics.h"
#include "gtest/gtest.h"
#include "proto/paceline/v1/result.pb.h"
#include "tests/testing/synthetic_run.h"

namespace paceline {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

// Records of RFC 4180 text.
std::vector<std::vector<std::string>> ParseCsv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1, std::vector<std::string>(1));
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
        rows.back().back() += text[++i];
      } else if (c == '"') {
        quoted = false;
      } else {
        rows.back().back() += c;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      rows.back().emplace_back();
    } else if (c == '\n') {
      rows.emplace_back(1);
    } else {
      rows.back().back() += c;
    }
  }
  rows.pop_back();
  return rows;
}

// Empty if every tag is closed in order, every attribute quoted and no '<' or '&' is stray.
std::string MarkupProblem(const std::string& html) {
  std::vector<std::string> open;
  size_t i = html.find('>') + 1;  // After the DOCTYPE.
  while (i < html.size()) {
    if (html[i] == '&') {
      const size_t end = html.find(';', i);
      if (end == std::string::npos || end - i > 8) {
        return absl::StrCat("stray & at: ", html.substr(i, 40));
      }
    }
    if (html[i] == '>') return absl::StrCat("stray > at: ", html.substr(i, 40));
    if (html[i] != '<') {
      ++i;
      continue;
    }
    const bool closing = html[i + 1] == '/';
    size_t at = i + 1 + closing;
    std::string name;
    while (std::isalnum(static_cast<unsigned char>(html[at]))) name += html[at++];
    if (name.empty()) return absl::StrCat("stray < at: ", html.substr(i, 40));
    bool in_quotes = false;
    while (at < html.size() && (in_quotes || html[at] != '>')) {
      if (html[at] == '"') in_quotes = !in_quotes;
      if (html[at] == '<') return absl::StrCat("< inside a tag at: ", html.substr(i, 60));
      ++at;
    }
    const bool empty = html[at - 1] == '/';
    if (closing) {
      if (open.empty() || open.back() != name) {
        return absl::StrCat("</", name, "> closes ", open.empty() ? "nothing" : open.back(),
                            " at: ", html.substr(i > 60 ? i - 60 : 0, 80));
      }
      open.pop_back();
    } else if (!empty) {
      open.push_back(name);
    }
    i = at + 1;
    if (name == "style" && !closing) i = html.find("</style>", i);
  }
  return open.empty() ? "" : absl::StrCat("left open: ", absl::StrJoin(open, ", "));
}

SyntheticRunOptions Options() {
  SyntheticRunOptions options;
  options.networks = {"lenet5", "cifar_resnet20"};
  options.policies = {"caffe_mpi", "cntk", "mxnet_device"};
  options.photographs = true;
  return options;
}

MergedRuns Merge(RunData run) {
  absl::StatusOr<MergedRuns> merged = MergeRuns({std::move(run)});
  EXPECT_TRUE(merged.ok()) << merged.status();
  return *std::move(merged);
}

class ReportTest : public testing::Test {
 protected:
  void Write(RunData run) {
    dir_ = absl::StrCat(testing::TempDir(), "/report_",
                        testing::UnitTest::GetInstance()->current_test_info()->name());
    absl::StatusOr<ReportSummary> summary = WriteReport(Merge(std::move(run)), dir_);
    ASSERT_TRUE(summary.ok()) << summary.status();
    summary_ = *std::move(summary);
  }
  std::string File(const std::string& name) { return ReadAll(dir_ + "/" + name); }

  std::string dir_;
  ReportSummary summary_;
};

TEST_F(ReportTest, TrialsCsvHasTheAgreedColumnsInOrder) {
  Write(*MakeSyntheticRun(Options()));
  const auto rows = ParseCsv(File("trials.csv"));
  ASSERT_EQ(rows.size(), 13u);
  const std::vector<std::string> agreed = absl::StrSplit(
      "trial,policy,engine,network,precision,backend,hosts,devices,batch_per_device,input,status,"
      "cause,samples_per_second,samples_per_second_low,samples_per_second_high,iteration_seconds,"
      "input_seconds,copy_seconds,forward_seconds,backward_seconds,communication_seconds,"
      "exposed_communication_seconds,update_seconds,scaling_efficiency,modelled_iteration_seconds,"
      "peak_memory_bytes",
      ',');
  ASSERT_GE(rows[0].size(), agreed.size());
  for (size_t i = 0; i < agreed.size(); ++i) EXPECT_EQ(rows[0][i], agreed[i]);
  for (size_t r = 1; r < rows.size(); ++r) {
    ASSERT_EQ(rows[r].size(), rows[0].size());
    EXPECT_EQ(rows[r][2], "native");
    EXPECT_EQ(rows[r][9], "photographs");
    EXPECT_EQ(rows[r][10], "OK");
    for (size_t c = 12; c < agreed.size(); ++c) {
      EXPECT_FALSE(rows[r][c].empty()) << agreed[c];
    }
    EXPECT_LE(std::stod(rows[r][13]), std::stod(rows[r][12]));
    EXPECT_GE(std::stod(rows[r][14]), std::stod(rows[r][12]));
  }
}

TEST_F(ReportTest, EveryCsvIsRectangular) {
  Write(*MakeSyntheticRun(Options()));
  for (const char* name :
       {"trials.csv", "repeats.csv", "fits.csv", "iterations.csv", "layers.csv"}) {
    const auto rows = ParseCsv(File(name));
    EXPECT_GT(rows.size(), 1u) << name;
    for (const auto& row : rows) ASSERT_EQ(row.size(), rows[0].size()) << name;
  }
  // 6 networks and policies, 33 iterations, one rank and two ranks.
  EXPECT_EQ(ParseCsv(File("iterations.csv")).size(), 1u + 6 * 33 * 3);
}

TEST_F(ReportTest, PageIsWellFormedAndNeedsNoNetwork) {
  Write(*MakeSyntheticRun(Options()));
  const std::string html = File("report.html");
  EXPECT_EQ(MarkupProblem(html), "");
  for (const char* outside : {"<script", "<link", "<img", "@import", "url(", "src="}) {
    EXPECT_FALSE(absl::StrContains(html, outside)) << outside;
  }
  for (const char* part :
       {"id=\"headline\"", "id=\"throughput\"", "id=\"phases\"", "id=\"timeline\"", "id=\"model\"",
        "id=\"failures\"", "id=\"machines\"", "id=\"limits\""}) {
    EXPECT_TRUE(absl::StrContains(html, part)) << part;
  }
  EXPECT_FALSE(absl::StrContains(html, "nan")) << html.substr(html.find("nan") - 60, 120);
}

TEST_F(ReportTest, TextFromResultsCannotBecomeMarkup) {
  RunData run = *MakeSyntheticRun(Options());
  FailTrial(&run, 1, v1::TRIAL_STATUS_INTERNAL, "<script>alert(\"1\")</script> & \xFF, 'x'\n2nd");
  run.info.plan.set_name("<b>plan</b>");
  for (auto& results : run.results) {
    for (v1::TrialResult& rank : results.second) {
      rank.mutable_machine()->set_host("<i>\"host");
      rank.mutable_machine()->set_kernel("6 & 7");
      for (v1::OperationSpan& span : *rank.mutable_trace()) span.set_name("\"><u>");
    }
  }
  Write(std::move(run));
  const std::string html = File("report.html");
  EXPECT_EQ(MarkupProblem(html), "");
  for (const char* tag : {"<script", "<b>", "<i>", "<u>"}) {
    EXPECT_FALSE(absl::StrContains(html, tag)) << tag;
  }
  const auto rows = ParseCsv(File("trials.csv"));
  bool found = false;
  for (const auto& row : rows)
    found |= absl::StartsWith(row[11], "<script>alert(\"1\")</script> &");
  EXPECT_TRUE(found) << "the CSV holds the cause as it was";
}

TEST_F(ReportTest, NothingMeasuredStillGivesAReport) {
  RunData run = *MakeSyntheticRun(Options());
  for (size_t i = 0; i < run.outcomes.size(); ++i) {
    FailTrial(&run, i, v1::TRIAL_STATUS_NOT_INSTALLED, "no such framework");
  }
  Write(std::move(run));
  EXPECT_EQ(summary_.measured, 0);
  EXPECT_EQ(summary_.failed, 12);
  EXPECT_TRUE(summary_.headlines.empty());
  EXPECT_EQ(MarkupProblem(File("report.html")), "");
  EXPECT_TRUE(absl::StrContains(File("report.html"), "NOT_INSTALLED"));
}

TEST_F(ReportTest, ZeroIterationsStillGiveAReport) {
  RunData run = *MakeSyntheticRun(Options());
  for (auto& results : run.results) {
    for (v1::TrialResult& rank : results.second) rank.clear_iterations();
  }
  Write(std::move(run));
  EXPECT_EQ(MarkupProblem(File("report.html")), "");
  EXPECT_FALSE(absl::StrContains(File("trials.csv"), "nan"));
}

TEST_F(ReportTest, TimelineHasAProcessPerRankAndNoNegativeTimes) {
  Write(*MakeSyntheticRun(Options()));
  const std::string json = File("timeline.json");
  EXPECT_TRUE(absl::StartsWith(json, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":["));
  EXPECT_TRUE(absl::StrContains(json, "lenet5, cntk, 2 devices, batch 16, photographs, rank 1"));
  EXPECT_TRUE(absl::StrContains(json, "\"thread_name\""));
  EXPECT_FALSE(absl::StrContains(json, "\"ts\":-"));
  EXPECT_FALSE(absl::StrContains(json, "null"));
}

TEST(WriteReportTest, AFolderThatCannotBeMadeIsNamed) {
  const std::string file = absl::StrCat(testing::TempDir(), "/in_the_way");
  std::ofstream(file) << "x";
  const absl::StatusOr<ReportSummary> report =
      WriteReport(Merge(*MakeSyntheticRun(Options())), file + "/report");
  ASSERT_FALSE(report.ok());
  EXPECT_TRUE(absl::StrContains(report.status().message(), file)) << report.status();
}

TEST(HeadlinesTest, NameAWinnerOnlyBeyondNoise) {
  // Heavy communication: overlapping it wins clearly.
  SyntheticRunOptions options;
  options.networks = {"alexnet_caffe"};
  options.policies = {"caffe_mpi", "cntk"};
  options.beta_seconds_per_byte = 2e-9;
  const std::vector<std::string> clear = Headlines(Merge(*MakeSyntheticRun(options)));
  ASSERT_EQ(clear.size(), 1u);
  EXPECT_TRUE(absl::StrContains(clear[0], "caffe_mpi is fastest")) << clear[0];
  EXPECT_TRUE(absl::StrContains(clear[0], "2 devices")) << clear[0];

  options.beta_seconds_per_byte = 1e-14;
  options.noise = 0.03;
  const std::vector<std::string> tied = Headlines(Merge(*MakeSyntheticRun(options)));
  ASSERT_EQ(tied.size(), 1u);
  EXPECT_TRUE(absl::StrContains(tied[0], "cannot be told apart")) << tied[0];
}

TEST(BottleneckTest, SaysWhatBoundsTheIteration) {
  SyntheticRunOptions options;
  options.networks = {"alexnet_caffe"};
  options.policies = {"cntk"};
  options.devices = {2};
  options.beta_seconds_per_byte = 10e-9;
  std::string words = Bottleneck(Merge(*MakeSyntheticRun(options)).trials[0]);
  EXPECT_TRUE(absl::StartsWith(words, "communication: ")) << words;
  EXPECT_TRUE(absl::StrContains(words, "all-reduce of 244 MB")) << words;
  EXPECT_TRUE(absl::StrContains(words, "starts communicating after it ends")) << words;

  options.beta_seconds_per_byte = 1e-12;
  words = Bottleneck(Merge(*MakeSyntheticRun(options)).trials[0]);
  EXPECT_TRUE(absl::StartsWith(words, "compute: ")) << words;

  options.photographs = true;
  options.read_seconds_per_sample = 10;
  words = Bottleneck(Merge(*MakeSyntheticRun(options)).trials[0]);
  EXPECT_TRUE(absl::StartsWith(words, "input: ")) << words;
  EXPECT_TRUE(absl::StrContains(words, "reading and decoding")) << words;
}

TEST(LimitationsTest, ReportsADriftButNotNoise) {
  SyntheticRunOptions options;
  options.networks = {"lenet5"};
  options.policies = {"wfbp"};
  RunData run = *MakeSyntheticRun(options);
  const auto drifting = [](RunData data) {
    const MergedRuns merged = Merge(std::move(data));
    for (const std::string& note : Limitations(merged, FitFrameworks(merged))) {
      if (absl::StrContains(note, "steady state")) return note;
    }
    return std::string();
  };
  EXPECT_EQ(drifting(run), "");
  for (v1::TrialResult& rank : run.results.at("lenet5-wfbp-n1-b16-r0")) {
    for (int i = 0; i < rank.iterations_size(); ++i) {
      v1::IterationSample& sample = *rank.mutable_iterations(i);
      sample.set_duration_ns(sample.duration_ns() * (1 + 0.01 * i));
    }
  }
  EXPECT_TRUE(absl::StartsWith(drifting(run), "1 configuration did not")) << drifting(run);
}

TEST(HumanTest, NumbersAreShort) {
  EXPECT_EQ(HumanSeconds(0.0123), "12.3 ms");
  EXPECT_EQ(HumanSeconds(1.5), "1.50 s");
  EXPECT_EQ(HumanSeconds(kUnknown), "\xE2\x80\x93");
  EXPECT_EQ(HumanBytes(243.9e6), "244 MB");
  EXPECT_EQ(HumanBytes(12), "12 B");
  EXPECT_EQ(HumanPercent(0.384), "38 %");
  EXPECT_EQ(HumanPercent(-0.0001), "0 %");
  EXPECT_EQ(HumanSignedPercent(0.012), "+1.2 %");
}

}  // namespace
}  // namespace paceline

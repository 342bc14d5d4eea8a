#include "analysis/cost/collective_model.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/cost/collective_cost.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

constexpr GrowthLaw kLaws[] = {
    GrowthLaw::kRing,       GrowthLaw::kHalvingDoubling, GrowthLaw::kRecursiveDoubling,
    GrowthLaw::kDoubleTree, GrowthLaw::kOneServer,       GrowthLaw::kConstantTime,
    GrowthLaw::kRingFactor};

// Spread of a law that nothing was checked on: what public curves showed (two ranks to four: up to
// 0.37; four to eight within a host: up to 0.25).
constexpr double kAssumedLogError = 0.3;
constexpr double kFromTwoRanksLogError = 0.45;
constexpr double kNewLinkLogError = 1.0;

// A checked law that misses by more is flagged.
constexpr double kDoubtfulLogError = 0.15;

bool CrossesHosts(int nodes) { return nodes != 1; }  // 0: every rank has its own.

// Whether `bytes` lies where the curve's last algorithm serves.
bool IsLarge(const SizeCurve& curve, double bytes) {
  return curve.RegimeAt(bytes) + 1 == curve.regimes().size();
}

double Share(int ranks) { return (ranks - 1.0) / ranks; }

// Time at `ranks` from the curve measured at `base`.
double Scale(GrowthLaw law, const CollectiveModel::RankCurve& base, double bytes, int ranks) {
  const SizeCurve& curve = base.curve;
  const size_t regime = curve.RegimeAt(bytes);
  const double time = curve.EvaluateRegime(regime, bytes);
  // Split into latency and transfer by the slope of the local line.
  const double nearby = 0.999 * bytes;
  const double transfer = std::min(
      time,
      std::max(0.0, (time - curve.EvaluateRegime(regime, nearby)) / (bytes - nearby) * bytes));
  const double latency = time - transfer;
  const double levels = std::log2(ranks) / std::log2(base.ranks);
  const double shares = Share(ranks) / Share(base.ranks);
  switch (law) {
    case GrowthLaw::kRing:
      // The same messages of M/n bytes, more of them.
      return curve.EvaluateRegime(regime, bytes * base.ranks / ranks) * (ranks - 1) /
             (base.ranks - 1);
    case GrowthLaw::kHalvingDoubling:
      return latency * levels + transfer * shares;
    case GrowthLaw::kRecursiveDoubling:
      return time * levels;
    case GrowthLaw::kDoubleTree:
      return latency * levels + transfer;
    case GrowthLaw::kOneServer:
      return time * ranks / base.ranks;
    case GrowthLaw::kConstantTime:
      return time;
    case GrowthLaw::kRingFactor:
      return time * shares;
  }
  return time;
}

struct Row {
  Eigen::Vector3d columns;  // Terms over the time: the model should give 1.
};

// Minimises Huber's loss of (columns * x - 1) with x >= 0 over the first `count` columns. Exact:
// all subsets of columns are tried.
Eigen::Vector3d SolveNonNegative(const std::vector<Row>& rows, int count) {
  std::vector<double> weights(rows.size(), 1);
  Eigen::Vector3d best = Eigen::Vector3d::Zero();
  for (int iteration = 0; iteration < 6; ++iteration) {
    Eigen::Matrix3d normal = Eigen::Matrix3d::Zero();
    Eigen::Vector3d right = Eigen::Vector3d::Zero();
    for (size_t i = 0; i < rows.size(); ++i) {
      normal += weights[i] * rows[i].columns * rows[i].columns.transpose();
      right += weights[i] * rows[i].columns;
    }
    double lowest = std::numeric_limits<double>::infinity();
    for (int mask = 1; mask < (1 << count); ++mask) {
      std::vector<int> used;
      for (int c = 0; c < count; ++c) {
        if (mask & (1 << c)) used.push_back(c);
      }
      const int size = static_cast<int>(used.size());
      Eigen::MatrixXd a(size, size);
      Eigen::VectorXd b(size);
      Eigen::VectorXd scale(size);
      for (int r = 0; r < size; ++r) scale(r) = std::sqrt(normal(used[r], used[r]));
      if (!(scale.minCoeff() > 0)) continue;
      for (int r = 0; r < size; ++r) {
        b(r) = right(used[r]) / scale(r);
        for (int c = 0; c < size; ++c) a(r, c) = normal(used[r], used[c]) / (scale(r) * scale(c));
      }
      const Eigen::VectorXd scaled = a.ldlt().solve(b);
      if (!scaled.allFinite() || scaled.minCoeff() < 0) continue;
      Eigen::Vector3d x = Eigen::Vector3d::Zero();
      for (int r = 0; r < size; ++r) x(used[r]) = scaled(r) / scale(r);
      const double loss = x.dot(normal * x) - 2 * right.dot(x);
      if (loss < lowest) {
        lowest = loss;
        best = x;
      }
    }
    std::vector<double> residuals;
    for (const Row& row : rows) residuals.push_back(std::abs(row.columns.dot(best) - 1));
    const double limit = 1.345 * std::max(0.003, 1.4826 * Median(residuals));
    for (size_t i = 0; i < rows.size(); ++i) {
      weights[i] = std::min(1.0, limit / std::max(1e-12, residuals[i]));
    }
  }
  return best;
}

// SplitMix64: the same on every platform.
uint64_t NextRandom(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

AllReduceAlgorithm ClosedForm(GrowthLaw law) {
  switch (law) {
    case GrowthLaw::kHalvingDoubling:
      return AllReduceAlgorithm::kHalvingDoubling;
    case GrowthLaw::kRecursiveDoubling:
      return AllReduceAlgorithm::kRecursiveDoubling;
    case GrowthLaw::kDoubleTree:
      return AllReduceAlgorithm::kDoubleTree;
    default:
      return AllReduceAlgorithm::kRing;
  }
}

}  // namespace

absl::string_view GrowthLawName(GrowthLaw law) {
  switch (law) {
    case GrowthLaw::kRing:
      return "ring";
    case GrowthLaw::kHalvingDoubling:
      return "halving-doubling";
    case GrowthLaw::kRecursiveDoubling:
      return "recursive doubling";
    case GrowthLaw::kDoubleTree:
      return "double tree";
    case GrowthLaw::kOneServer:
      return "one server";
    case GrowthLaw::kConstantTime:
      return "constant time (baseline)";
    case GrowthLaw::kRingFactor:
      return "ring factor (baseline)";
  }
  return "unknown";
}

std::string IdentifiabilityReport::Text() const {
  std::string text = absl::StrFormat("%s: rank %d of %d, condition number %.3g\n", law, rank,
                                     parameters, condition_number);
  for (const ParameterEstimate& e : estimates) {
    if (e.value.has_value()) {
      absl::StrAppendFormat(&text, "  %s = %.3g [%.3g, %.3g]", e.name, *e.value,
                            e.low.value_or(NAN), e.high.value_or(NAN));
    } else {
      absl::StrAppend(&text, "  ", e.name, ": not determined");
    }
    absl::StrAppend(&text, e.note.empty() ? "" : "; ", e.note, "\n");
  }
  for (int i = 0; i < 3; ++i) {
    for (int j = i + 1; j < 3; ++j) {
      if (!correlations[i][j].has_value()) continue;
      absl::StrAppendFormat(&text, "  correlation of %s and %s: %.2f\n", estimates[i].name,
                            estimates[j].name, *correlations[i][j]);
    }
  }
  return text;
}

absl::StatusOr<CollectiveModel> CollectiveModel::Fit(
    absl::Span<const CollectiveMeasurement> measurements) {
  if (measurements.empty()) {
    return absl::FailedPreconditionError("no measurement of a collective to fit");
  }
  CollectiveModel model;
  std::map<int, std::vector<SizePoint>> by_ranks;
  std::map<int, int> nodes;
  std::map<std::pair<int, double>, const CollectiveMeasurement*> first_at;
  for (const CollectiveMeasurement& m : measurements) {
    if (!(m.bytes > 0) || !(m.seconds > 0) || !std::isfinite(m.bytes) ||
        !std::isfinite(m.seconds) || m.ranks < 2) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: %g bytes over %d ranks take %g s: expected sizes and times above 0 "
                          "and 2 or more ranks",
                          m.place, m.bytes, m.ranks, m.seconds));
    }
    if (m.collective != measurements[0].collective) {
      return absl::InvalidArgumentError(
          absl::StrCat(m.place, ": \"", m.collective, "\" among measurements of \"",
                       measurements[0].collective, "\": fit each collective on its own"));
    }
    const CollectiveMeasurement*& first = first_at[{m.ranks, m.bytes}];
    if (first == nullptr) first = &m;
    if (m.seconds > 30 * first->seconds || first->seconds > 30 * m.seconds) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: %g s for what takes %g s at %s: mixed units?", m.place, m.seconds,
                          first->seconds, first->place));
    }
    const auto known = nodes.emplace(m.ranks, m.nodes);
    if (!known.second && known.first->second != m.nodes) {
      return absl::InvalidArgumentError(absl::StrCat(m.place, ": ", m.ranks, " ranks on ", m.nodes,
                                                     " nodes, elsewhere on ", known.first->second,
                                                     ": fit each placement on its own"));
    }
    by_ranks[m.ranks].push_back({m.bytes, m.seconds});
  }
  for (const auto& entry : by_ranks) {
    absl::StatusOr<SizeCurve> curve = SizeCurve::Fit(entry.second);
    if (!curve.ok()) {
      model.flags_.push_back(
          absl::StrCat(entry.first, " ranks are left out: ", curve.status().message()));
      continue;
    }
    model.curves_.push_back({entry.first, nodes[entry.first], *std::move(curve)});
  }
  if (model.curves_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("nothing to fit: ", absl::StrJoin(model.flags_, "; ")));
  }
  if (model.curves_.size() == 1) {
    model.flags_.push_back(absl::StrCat("one number of ranks (", model.curves_[0].ranks,
                                        "): how time grows with ranks cannot be told; measure ",
                                        2 * model.curves_[0].ranks));
  }
  model.ChooseLaws();
  model.Identify();
  return model;
}

void CollectiveModel::ChooseLaws() {
  for (bool between : {false, true}) {
    for (bool large : {false, true}) {
      LawChoice& choice = laws_[between][large];
      choice.law = large ? GrowthLaw::kRing : GrowthLaw::kRecursiveDoubling;
      std::map<GrowthLaw, std::vector<double>> errors;
      for (size_t c = 0; c + 1 < curves_.size(); ++c) {
        const RankCurve& base = curves_[c];
        const RankCurve& next = curves_[c + 1];
        if (base.ranks < 3 || CrossesHosts(base.nodes) != between ||
            CrossesHosts(next.nodes) != between) {
          continue;
        }
        bool used = false;
        for (const SizePoint& p : next.curve.points()) {
          if (IsLarge(base.curve, p.bytes) != large) continue;
          used = true;
          for (GrowthLaw law : kLaws) {
            errors[law].push_back(
                std::abs(std::log(Scale(law, base, p.bytes, next.ranks) / p.seconds)));
          }
        }
        choice.steps += used;
      }
      if (errors.empty()) continue;
      choice.log_error = std::numeric_limits<double>::infinity();
      for (GrowthLaw law : kLaws) {
        double mean = 0;
        for (double error : errors[law]) mean += error / errors[law].size();
        // A later law must win clearly: the first ones are what libraries do.
        if (mean < 0.95 * choice.log_error) {
          choice.law = law;
          choice.log_error = mean;
          choice.log_error_p90 = Quantile(errors[law], 0.9);
        }
        if (law == GrowthLaw::kConstantTime) choice.constant_error = mean;
        if (law == GrowthLaw::kRingFactor) choice.ring_factor_error = mean;
      }
    }
  }
}

void CollectiveModel::Identify() {
  IdentifiabilityReport& report = identifiability_;
  const GrowthLaw law = laws_[CrossesHosts(curves_.back().nodes)][1].law;
  report.law = std::string(AllReduceAlgorithmName(ClosedForm(law)));
  std::vector<Row> rows;
  std::vector<size_t> starts;  // First row of each curve.
  double smallest = std::numeric_limits<double>::infinity(), largest = 0;
  for (const RankCurve& base : curves_) {
    starts.push_back(rows.size());
    const CostTerms terms = *AllReduceTerms(ClosedForm(law), base.ranks);
    for (const SizePoint& p : base.curve.points()) {
      if (!IsLarge(base.curve, p.bytes)) continue;
      rows.push_back({Eigen::Vector3d(terms.alpha_count, terms.beta_volume * p.bytes,
                                      terms.gamma_volume * p.bytes) /
                      p.seconds});
      smallest = std::min(smallest, p.bytes);
      largest = std::max(largest, p.bytes);
    }
  }
  starts.push_back(rows.size());
  Eigen::MatrixXd matrix(rows.size(), 3);
  for (size_t i = 0; i < rows.size(); ++i) matrix.row(i) = rows[i].columns.transpose();
  for (int c = 0; c < 3; ++c) {
    const double norm = matrix.col(c).norm();
    if (norm > 0) matrix.col(c) /= norm;
  }
  const Eigen::VectorXd singular = Eigen::JacobiSVD<Eigen::MatrixXd>(matrix).singularValues();
  for (int i = 0; i < singular.size(); ++i) report.rank += singular(i) > 1e-6 * singular(0);
  // gamma's column is a multiple of beta's in every closed form at one number of ranks, and in most
  // at all: only their sum can be seen.
  const Eigen::MatrixXd kept = matrix.leftCols(2);
  const Eigen::VectorXd kept_singular = Eigen::JacobiSVD<Eigen::MatrixXd>(kept).singularValues();
  const bool two_columns = kept_singular.size() > 1 && kept_singular(1) > 1e-6 * kept_singular(0);
  report.condition_number =
      two_columns ? kept_singular(0) / kept_singular(1) : std::numeric_limits<double>::infinity();
  const Eigen::Vector3d best = SolveNonNegative(rows, 2);

  // Block bootstrap: neighbouring sizes err alike.
  constexpr int kResamples = 200;
  std::vector<double> alphas, betas;
  uint64_t state = 20171122;
  std::vector<Row> sample;
  for (int r = 0; r < kResamples; ++r) {
    sample.clear();
    for (size_t c = 0; c + 1 < starts.size(); ++c) {
      const size_t count = starts[c + 1] - starts[c];
      if (count == 0) continue;
      const size_t block = std::max<size_t>(1, std::min<size_t>(8, count / 4));
      for (size_t taken = 0; taken < count;) {
        size_t at = NextRandom(&state) % count;
        for (size_t k = 0; k < block && taken < count; ++k, ++taken) {
          sample.push_back(rows[starts[c] + at]);
          at = (at + 1) % count;
        }
      }
    }
    const Eigen::Vector3d x = SolveNonNegative(sample, 2);
    alphas.push_back(x(0));
    betas.push_back(x(1));
  }
  const auto estimate = [](const char* name, double value, const std::vector<double>& resampled) {
    ParameterEstimate e;
    e.name = name;
    e.value = value;
    e.low = Quantile(resampled, 0.05);
    e.high = Quantile(resampled, 0.95);
    return e;
  };
  ParameterEstimate alpha = estimate("alpha_seconds", best(0), alphas);
  ParameterEstimate beta = estimate("beta_seconds_per_byte", best(1), betas);
  ParameterEstimate gamma;
  gamma.name = "gamma_seconds_per_byte";
  gamma.note = "part of beta: time an all-gather of the same sizes to tell them apart";
  const auto withdraw = [](ParameterEstimate* e, std::string why) {
    e->value.reset();
    e->low.reset();
    e->high.reset();
    e->note = std::move(why);
  };
  if (!two_columns) {
    const std::string why =
        "latency and bandwidth look the same in these measurements: measure two "
        "decades of sizes";
    withdraw(&alpha, why);
    withdraw(&beta, why);
  } else if (largest < 100 * smallest) {
    withdraw(&alpha, absl::StrFormat("large messages span %.3g to %.3g bytes only, two decades are "
                                     "needed: measure %.3g bytes",
                                     smallest, largest, 100 * smallest));
  } else if (*alpha.high - *alpha.low > *alpha.value) {
    withdraw(&alpha,
             absl::StrFormat("its 90 %% interval [%.3g, %.3g] is wider than its value: measure "
                             "smaller sizes",
                             *alpha.low, *alpha.high));
  }
  if (beta.value.has_value() && *beta.high - *beta.low > *beta.value) {
    withdraw(&beta, "its 90 % interval is wider than its value: measure larger sizes");
  }
  if (alpha.value.has_value() && curves_.size() == 1) {
    alpha.note = absl::StrCat("if the algorithm is ", report.law,
                              ": one number of ranks does not show the number of messages");
  }
  for (const RankCurve& c : curves_) {
    if (c.nodes > 1 && c.ranks > c.nodes && beta.note.empty()) {
      beta.note =
          absl::StrCat(c.ranks, " ranks on ", c.nodes,
                       " nodes: inside and between nodes are not told apart; a mean of both");
    }
  }
  if (alpha.value.has_value() && beta.value.has_value()) {
    double saa = 0, sbb = 0, sab = 0, ma = 0, mb = 0;
    for (int i = 0; i < kResamples; ++i) {
      ma += alphas[i] / kResamples;
      mb += betas[i] / kResamples;
    }
    for (int i = 0; i < kResamples; ++i) {
      saa += (alphas[i] - ma) * (alphas[i] - ma);
      sbb += (betas[i] - mb) * (betas[i] - mb);
      sab += (alphas[i] - ma) * (betas[i] - mb);
    }
    if (saa > 0 && sbb > 0) {
      report.correlations[0][1] = report.correlations[1][0] = sab / std::sqrt(saa * sbb);
    }
  }
  report.estimates = {std::move(alpha), std::move(beta), std::move(gamma)};
}

CollectivePrediction CollectiveModel::Predict(double bytes, int ranks, int nodes) const {
  CollectivePrediction prediction;
  if (ranks == 1) {
    prediction.method = "one rank has nothing to reduce";
    return prediction;
  }
  if (!(bytes > 0) || !std::isfinite(bytes) || ranks < 1) {
    prediction.seconds = prediction.low_seconds = prediction.high_seconds =
        std::numeric_limits<double>::quiet_NaN();
    prediction.flags.push_back(absl::StrFormat(
        "%g bytes over %d ranks: expected more than 0 bytes and ranks", bytes, ranks));
    return prediction;
  }
  // The largest measured number of ranks up to this one, of the same kind of links if there is one.
  const RankCurve* base = nullptr;
  for (const RankCurve& candidate : curves_) {
    if (candidate.ranks == ranks && candidate.nodes == nodes) base = &candidate;
  }
  const bool measured = base != nullptr;
  if (!measured) {
    const auto rank_of = [&](const RankCurve& c) {
      // Same links first, then from below, then near.
      return std::make_tuple(CrossesHosts(c.nodes) == CrossesHosts(nodes) ? 0 : 1,
                             c.ranks <= ranks ? 0 : 1, std::abs(std::log(1.0 * c.ranks / ranks)));
    };
    for (const RankCurve& candidate : curves_) {
      if (base == nullptr || rank_of(candidate) < rank_of(*base)) base = &candidate;
    }
  }
  const CurvePrediction at_base = base->curve.Predict(bytes);
  if (measured) {
    prediction.seconds = at_base.seconds;
    prediction.low_seconds = at_base.low_seconds;
    prediction.high_seconds = at_base.high_seconds;
    prediction.extrapolated = at_base.extrapolated;
    prediction.method = absl::StrCat("measured at ", ranks, " ranks");
    if (!at_base.note.empty()) prediction.flags.push_back(at_base.note);
    return prediction;
  }
  const LawChoice& choice = laws_[CrossesHosts(nodes)][IsLarge(base->curve, bytes)];
  prediction.seconds = Scale(choice.law, *base, bytes, ranks);
  prediction.method = absl::StrCat(GrowthLawName(choice.law), " from ", base->ranks, " ranks");
  if (choice.steps == 0) {
    // The fitted intercept is only partly paid per message: latency may grow less than the law
    // says.
    prediction.seconds =
        std::sqrt(prediction.seconds * Scale(GrowthLaw::kRingFactor, *base, bytes, ranks));
    prediction.method = absl::StrCat("between ring factor and ", prediction.method);
  }
  prediction.extrapolated = true;
  const double doublings = std::abs(std::log2(1.0 * ranks / base->ranks));
  double law_error = std::max(0.05, 1.3 * choice.log_error_p90);
  if (CrossesHosts(base->nodes) != CrossesHosts(nodes)) {
    law_error = kNewLinkLogError;
    prediction.flags.push_back(absl::StrFormat(
        "measured %s hosts only: the other link is unknown; measure %.3g bytes over %d ranks on %d "
        "nodes",
        CrossesHosts(base->nodes) ? "between" : "within", bytes, std::max(ranks, 2),
        std::max(nodes, 1)));
  } else if (base->ranks == 2) {
    law_error = kFromTwoRanksLogError;
    prediction.flags.push_back(absl::StrFormat(
        "two ranks show nothing of how time grows: measure %.3g bytes over 4 ranks", bytes));
  } else if (choice.steps == 0) {
    law_error = kAssumedLogError;
    prediction.flags.push_back(absl::StrFormat(
        "growth by %s is assumed, nothing checks it: measure %.3g bytes over %d ranks",
        GrowthLawName(choice.law), bytes, std::min(ranks, 2 * base->ranks)));
  } else if (choice.steps == 1) {
    law_error = std::max(law_error, kAssumedLogError);
    prediction.flags.push_back(absl::StrFormat(
        "growth by %s fits one step only, nothing checks it: measure %.3g bytes over %d ranks",
        GrowthLawName(choice.law), bytes, std::min(ranks, 2 * base->ranks)));
  } else if (choice.log_error_p90 > kDoubtfulLogError) {
    prediction.flags.push_back(absl::StrFormat(
        "the best law (%s) misses measured ranks by up to %.0f %%: measure %.3g bytes over %d "
        "ranks",
        GrowthLawName(choice.law), 100 * std::expm1(choice.log_error_p90), bytes, ranks));
  } else if (doublings > 2) {
    prediction.flags.push_back(
        absl::StrFormat("%d ranks are %.0f times those measured: measure %.3g bytes over %d ranks",
                        ranks, 1.0 * ranks / base->ranks, bytes, 2 * base->ranks));
  }
  if (!at_base.note.empty()) prediction.flags.push_back(at_base.note);
  const double size_error =
      std::log(at_base.high_seconds / std::max(1e-300, at_base.low_seconds)) / 2;
  const double half = std::hypot(size_error, law_error * std::max(1.0, doublings));
  prediction.low_seconds = prediction.seconds * std::exp(-half);
  prediction.high_seconds = prediction.seconds * std::exp(half);
  return prediction;
}

}  // namespace paceline

// vTrain's 1,440 runs of GPTs on 2, 4 and 8 A100: three ways to fit on some and predict the others.
#include "peers/import/vtrain.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "bench/accuracy/row.h"
#include "motley/base/random.h"

namespace motley::bench {
namespace {

using peers::CollectiveCurves;
using peers::TransformerJob;
using peers::TransformerRun;

constexpr std::size_t kDraws = 20;
// Not from a clock: they are linear in the micro-batches to the last digit.
constexpr const char* kOrigin = "times composed from traced layers, see peers/steps/README.md";
constexpr std::size_t kShare = 10;  // one row in this many is fitted
// NVIDIA A100 80 GB, data sheet: dense fp16 and memory.
constexpr peers::DevicePeaks kPeaks = {312e12, BytesPerSecond(2039e9)};

struct Split {
  std::vector<TransformerRun> fitted, predicted;
};

Split split_by(const std::vector<TransformerRun>& runs,
               const std::function<bool(const TransformerJob&)>& is_fitted) {
  Split split;
  for (const TransformerRun& run : runs)
    (is_fitted(run.job) ? split.fitted : split.predicted).push_back(run);
  return split;
}

/// Draws a tenth of the runs without replacement.
Split draw(std::vector<TransformerRun> runs, std::uint64_t seed) {
  SplitMix64 random(seed);
  for (std::size_t i = runs.size(); i > 1; --i) std::swap(runs[i - 1], runs[random.below(i)]);
  const auto end = runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / kShare);
  return {{runs.begin(), end}, {end, runs.end()}};
}

Result<void> add_cases(const Split& split, const CollectiveCurves& all_reduce,
                       std::vector<Case>& cases) {
  MOTLEY_ASSIGN(const auto model, peers::fit_transformer_model(split.fitted, all_reduce, kPeaks));
  MOTLEY_ASSIGN(const auto residuals, peers::cross_validate(split.fitted, all_reduce, kPeaks));
  for (const TransformerRun& run : split.predicted) {
    MOTLEY_ASSIGN(const auto interval, peers::estimate_interval(model, run.job, residuals));
    cases.push_back({interval, run.measured.value});
  }
  return {};
}

}  // namespace

Rows vtrain_rows(const std::string& data) {
  const std::string folder = data + "/vtrain";
  MOTLEY_ASSIGN(const auto runs, peers::read_vtrain_runs(folder + "/ground_truth_single.csv"));
  MOTLEY_ASSIGN(const auto all_reduce, peers::read_vtrain_all_reduce(folder + "/allreduce/a100"));

  Row tenth{"vtrain: a tenth of the rows",
            "time",
            fmt::format("fitted on 10 % of the rows, drawn at random, predicting the others; {} "
                        "draws, all their cases; {}",
                        kDraws, kOrigin),
            "9.1 % ten-term regression, 10-fold",
            0.06,
            {}};
  for (std::uint64_t seed = 0; seed < kDraws; ++seed)
    MOTLEY_RETURN_IF_ERROR(add_cases(draw(runs, seed), all_reduce, tenth.cases));

  Row eight{"vtrain: 8 GPUs",
            "time",
            fmt::format("fitted on 2 and 4 GPUs, predicting 8; {}", kOrigin),
            "11.0 % ten-term regression",
            0.08,
            {}};
  const auto is_small = [](const TransformerJob& job) {
    return job.tensor * job.data * job.pipeline < 8;
  };
  MOTLEY_RETURN_IF_ERROR(add_cases(split_by(runs, is_small), all_reduce, eight.cases));

  Row wide{"vtrain: hidden size 2048",
           "time",
           fmt::format("fitted on hidden size 1024, predicting 2048; {}", kOrigin),
           "12.6 % ten-term regression",
           0.08,
           {}};
  const auto is_narrow = [](const TransformerJob& job) { return job.hidden == 1024; };
  MOTLEY_RETURN_IF_ERROR(add_cases(split_by(runs, is_narrow), all_reduce, wide.cases));
  return std::vector<Row>{std::move(tenth), std::move(eight), std::move(wide)};
}

}  // namespace motley::bench

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/data/dataset.h"

namespace motley::run {

/// The metric that decides which model is the best.
struct Watch {
  std::string metric = "loss";
  bool higher_is_better = false;
  bool operator==(const Watch&) const = default;
};
/// Parses "accuracy:max" or "loss:min". Without an ending, a metric whose name ends in "loss",
/// "perplexity" or "error" is better when lower, any other when higher. Usage errors.
Result<Watch> parse_watch(const std::string& text);

struct EvaluationJob {
  data::DataSource data;
  std::int64_t samples = 0;  ///< of the data
  std::int64_t every = 0;    ///< steps; 0: at the end only
  /// Program files: for whole batches and, if samples are left, for these.
  std::vector<std::string> programs;
  std::vector<std::string> outputs;  ///< names of the graph's metrics, in order
  Watch watch;
  /// Consecutive evaluations without improvement after which training ends; 0: no limit.
  std::int64_t patience = 0;
  bool operator==(const EvaluationJob&) const = default;
  static void fields(auto& it, auto& field) {
    field("data", it.data)("samples", it.samples)("every", it.every)("programs", it.programs);
    field("outputs", it.outputs)("watch", it.watch.metric);
    field("higher_is_better", it.watch.higher_is_better)("patience", it.patience);
  }
  Result<void> check(const std::string& where) const;
};

struct Evaluation {
  double loss = 0;
  std::vector<std::pair<std::string, double>> metrics;  ///< by name, in the order of the graph
  bool operator==(const Evaluation&) const = default;
  std::optional<double> find(const std::string& name) const;
};

/// Combines batches. If outputs `NAME.0` and `NAME.1` are a sum and a count, metric NAME is the sum
/// of sums over the sum of counts. Any other output, and the loss, is averaged over batches
/// weighted by samples. A metric whose name ends in `perplexity` is e raised to that value.
class EvaluationSums {
 public:
  explicit EvaluationSums(const std::vector<std::string>& outputs);
  void add(double loss, const std::vector<double>& outputs, std::int64_t samples);
  std::vector<std::string> names() const;
  /// Returns the metrics. Runtime errors (run.metric) by name: a zero count, a non-finite number.
  Result<Evaluation> result() const;

 private:
  /// Positions among the outputs.
  struct Metric {
    std::string name;
    std::size_t sum;
    std::optional<std::size_t> count;  ///< none: weighted by samples
  };
  std::vector<Metric> metrics_;
  std::vector<char> weighed_;  // by output: is a mean over a batch's samples
  std::vector<double> sums_;   // by output
  double loss_ = 0, samples_ = 0;
};

/// The best evaluation so far; saved in checkpoints.
struct Best {
  double value = 0;
  std::int64_t step = 0;         ///< steps done then
  std::int64_t worse_since = 0;  ///< evaluations after it
  bool operator==(const Best&) const = default;
  static void fields(auto& it, auto& field) {
    field("value", it.value)("step", it.step)("worse_since", it.worse_since);
  }
};
/// Records an evaluation after `step` steps. Returns whether it is the best one.
bool update_best(const Watch& watch, double value, std::int64_t step, std::optional<Best>& best);

}  // namespace motley::run

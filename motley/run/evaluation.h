#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/data/dataset.h"

namespace motley::run {

/// Which metric says what the best model is.
struct Watch {
  std::string metric = "loss";
  bool higher_is_better = false;
  bool operator==(const Watch&) const = default;
};
/// "accuracy:max", "loss:min"; without an ending a metric whose name ends in "loss", "perplexity"
/// or "error" is better where it is lower and any other where it is higher. Usage errors.
Result<Watch> parse_watch(const std::string& text);

/// How a training is evaluated, as a job says it.
struct EvaluationJob {
  data::DataSource data;
  std::int64_t samples = 0;  ///< of the data
  std::int64_t every = 0;    ///< steps; 0: at the end only
  /// Files of the programs: of whole batches, and of the samples left, where there are any.
  std::vector<std::string> programs;
  std::vector<std::string> outputs;  ///< names of the graph's metrics, in order
  Watch watch;
  /// Evaluations in a row without a better one after which training ends; 0: none.
  std::int64_t patience = 0;
  bool operator==(const EvaluationJob&) const = default;
  static void fields(auto& it, auto& field) {
    field("data", it.data)("samples", it.samples)("every", it.every)("programs", it.programs);
    field("outputs", it.outputs)("watch", it.watch.metric);
    field("higher_is_better", it.watch.higher_is_better)("patience", it.patience);
  }
  Result<void> check(const std::string& where) const;
};

/// What an evaluation gave.
struct Evaluation {
  double loss = 0;
  std::vector<std::pair<std::string, double>> metrics;  ///< by name, in the order of the graph
  bool operator==(const Evaluation&) const = default;
  /// The loss, or a metric by name.
  std::optional<double> find(const std::string& name) const;
};

/// Puts batches together. Outputs `NAME.0` and `NAME.1` are a sum and a count: the metric NAME is
/// the sum of sums over that of counts. Of another output, and of the loss, it is the mean of the
/// batches weighed by their samples. A metric whose name ends in `perplexity` is e to that power.
class EvaluationSums {
 public:
  explicit EvaluationSums(const std::vector<std::string>& outputs);
  /// A batch's loss and outputs.
  void add(double loss, const std::vector<double>& outputs, std::int64_t samples);
  /// Names of the metrics that result() gives, in its order.
  std::vector<std::string> names() const;
  /// Runtime errors (run.metric), by name: a count of zero, a number that is not finite.
  Result<Evaluation> result() const;

 private:
  /// Positions among the outputs.
  struct Metric {
    std::string name;
    std::size_t sum;
    std::optional<std::size_t> count;  ///< none: the samples
  };
  std::vector<Metric> metrics_;
  std::vector<char> weighed_;  // by output: is it a mean over a batch's samples?
  std::vector<double> sums_;   // by output
  double loss_ = 0, samples_ = 0;
};

/// The best evaluation so far, part of a checkpoint.
struct Best {
  double value = 0;
  std::int64_t step = 0;         ///< steps done then
  std::int64_t worse_since = 0;  ///< evaluations after it
  bool operator==(const Best&) const = default;
  static void fields(auto& it, auto& field) {
    field("value", it.value)("step", it.step)("worse_since", it.worse_since);
  }
};
/// Takes an evaluation after `step` steps into account. Is it the best one?
bool update_best(const Watch& watch, double value, std::int64_t step, std::optional<Best>& best);

}  // namespace motley::run

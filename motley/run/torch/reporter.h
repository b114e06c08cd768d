#pragma once

#include <string>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/run/job.h"

namespace motley::run {

/// Writes events and results to the standard output that the worker was started with. Later output
/// of libraries goes to standard error, so that the two never mix.
class Reporter {
 public:
  /// Takes over standard output. Once per process.
  Reporter();
  void set_rank(int rank) { rank_ = rank; }
  int rank() const { return rank_; }
  int output() const { return output_; }
  void event(const std::string& name, Json fields) const;
  void error(const Error& error, const std::string& instruction) const;
  /// Writes the result of a verb that is not a job.
  void result(const Json& json) const;

 private:
  void line(std::string text) const;
  int output_ = 1, rank_ = 0;
};

}  // namespace motley::run

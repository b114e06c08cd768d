#pragma once

#include <string>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/run/job.h"

namespace motley::run {

/// The worker's voice: events and results on the standard output it was started with. Whatever a
/// library prints afterwards goes to standard error, so that the two never mix.
class Reporter {
 public:
  /// Takes standard output over. Once a process.
  Reporter();
  void set_rank(int rank) { rank_ = rank; }
  int rank() const { return rank_; }
  /// Where the lines go.
  int output() const { return output_; }
  /// One line, written whole.
  void event(const std::string& name, Json fields) const;
  void error(const Error& error, const std::string& instruction) const;
  /// Result of a verb that is no job.
  void result(const Json& json) const;

 private:
  void line(std::string text) const;
  int output_ = 1, rank_ = 0;
};

}  // namespace motley::run

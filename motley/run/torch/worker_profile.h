#pragma once

#include <string>

#include "motley/base/result.h"
#include "motley/run/torch/reporter.h"

namespace motley::run {

/// Verb `profile`: times the compute instructions of each program of a ProfileJob (measure.h) in
/// this process, alone, and reports the results.
Result<void> run_profile(const std::string& job_path, const Reporter& reporter);

}  // namespace motley::run

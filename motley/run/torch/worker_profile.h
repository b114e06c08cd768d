#pragma once

#include <string>

#include "motley/base/result.h"
#include "motley/run/torch/reporter.h"

namespace motley::run {

/// Verb `profile`: times each program's compute instructions (measure.h) in this process, alone.
Result<void> run_profile(const std::string& job_path, const Reporter& reporter);

}  // namespace motley::run

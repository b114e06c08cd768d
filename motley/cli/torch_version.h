#pragma once

#include <string>

#include "motley/base/result.h"
#include "motley/cli/context.h"

namespace motley::cli {

/// "2.15.0": the PyTorch that motley-worker was built for; empty without a worker.
std::string built_torch_version();

/// Why libmotley_cuda.so, which CUDA devices need, was left out of the build; empty if it was not.
std::string cuda_left_out();

/// "2.15" of the PyTorch that motley-worker was built for and runs with; error when the worker is
/// missing or refuses to run.
Result<std::string> worker_version(const Context& context);

}  // namespace motley::cli

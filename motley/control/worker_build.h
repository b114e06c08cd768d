#pragma once

#include <string>

namespace motley::control {

/// What the build says of motley-worker, in motley-worker.json beside it: so that `motley` knows
/// nothing of PyTorch, and either is installed without the other.
struct WorkerBuild {
  std::string torch;   ///< "2.15.0": the PyTorch that it was built for; "": there is no worker
  std::string folder;  ///< of the torch package that it runs
  /// Why libmotley_cuda.so, which CUDA devices need, was left out; "": it was not.
  std::string cuda_left_out;
};

/// Of the worker at that path, or where a link there leads. A `folder` that is relative is so to
/// the worker's own. Without the file, or where it cannot be read, there is no worker.
WorkerBuild read_worker_build(const std::string& worker);

/// That of the program `motley` beside which it lies.
std::string worker_of(const std::string& program);

}  // namespace motley::control

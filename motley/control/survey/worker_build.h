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

/// Names the folder of the torch package where that does not lie beside the worker's.
inline constexpr const char* kTorchVariable = "MOTLEY_TORCH";

/// Of the worker at that path, or where a link there leads. A `folder` that is relative is so to
/// the worker's own; where there is no PyTorch, it is the one that kTorchVariable names. Without
/// the file, or where it cannot be read, there is no worker.
WorkerBuild read_worker_build(const std::string& worker);

/// Where PyTorch is among other packages than the worker (an environment over a system's packages,
/// a user's own): has this process, and all that it starts, use that one, by kTorchVariable and
/// LD_LIBRARY_PATH. It is the one that an interpreter has: MOTLEY_PYTHON, else that of the worker's
/// environment, else python3. Nothing happens where it is beside the worker, or nowhere.
void use_torch_elsewhere(const std::string& worker);

/// That of the program `motley` beside which it lies.
std::string worker_of(const std::string& program);

}  // namespace motley::control

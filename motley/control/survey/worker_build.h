#pragma once

#include <string>

namespace motley::control {

/// The build's description of motley-worker (motley-worker.json beside it), which keeps `motley`
/// independent of PyTorch.
struct WorkerBuild {
  std::string torch;   ///< "2.15.0": PyTorch of the build; "": there is no worker
  std::string folder;  ///< of the torch package in use
  /// Why libmotley_cuda.so, which CUDA devices need, was not built; "": it was.
  std::string cuda_left_out;
};

/// Names the folder of the torch package if that is not beside the worker's.
inline constexpr const char* kTorchVariable = "MOTLEY_TORCH";

/// Reads the description of the worker at that path, following links. A relative `folder` is
/// relative to the worker's; without PyTorch there, kTorchVariable names it. Without a readable
/// file there is no worker.
WorkerBuild read_worker_build(const std::string& worker);

/// Makes this process and its children use a PyTorch that is installed apart from the worker (an
/// environment over system packages, or user packages), by kTorchVariable and LD_LIBRARY_PATH. Asks
/// the interpreter MOTLEY_PYTHON, else the one of the worker's environment, else python3. Does
/// nothing if PyTorch is beside the worker, or nowhere.
void use_torch_elsewhere(const std::string& worker);

/// Returns the path of the worker beside the program `motley`.
std::string worker_of(const std::string& program);

}  // namespace motley::control

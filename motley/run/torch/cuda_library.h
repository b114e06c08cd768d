#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/torch/exchange/host_communicator.h"
#include "motley/run/torch/operators/device_kernels.h"

namespace motley::run {

struct CudaDevice {
  int index = 0;
  std::string name;        ///< "NVIDIA H100 80GB HBM3"
  std::string capability;  ///< "9.0"
  Bytes memory;
  std::string uuid;  ///< "GPU-8a1c...", as the driver prints it
};

/// The code that needs CUDA headers. libmotley_cuda.so, next to the program, implements it; it is
/// loaded when a CUDA device is requested. All else reaches CUDA through PyTorch's dispatcher.
class CudaLibrary {
 public:
  virtual ~CudaLibrary() = default;
  virtual Result<std::vector<CudaDevice>> devices() const = 0;
  /// Makes the device current for the calling thread; allocations beyond `memory` fail.
  virtual Result<void> use_device(int index, std::optional<Bytes> memory) const = 0;
  /// Makes collectives with NCCL, like make_host_communicator but without emulated links.
  virtual Result<std::unique_ptr<Communicator>> make_nccl_communicator(
      Rendezvous& rendezvous, const CommunicatorOptions& options, int device) const = 0;
  /// Returns the devices' kernels, which live as long as this.
  virtual const DeviceKernels& kernels() const = 0;
  /// Returns kernel code for an architecture ("sm_90", "compute_90"), as compile_kernels.
  virtual Result<std::string> kernel_code(const std::string& architecture) const = 0;
};

/// Loads NVIDIA's driver, PyTorch's CUDA half and libmotley_cuda.so, once, before ATen is asked
/// about CUDA: its answer "no CUDA" is final. Runtime error "run.no-cuda" names the missing one.
Result<const CudaLibrary*> load_cuda();

struct WorkerDevice;
/// Returns a GPU's ordinal here: by UUID, whatever the driver's order, or else `local_index`. Stale
/// error "host.device" (exit 4), with device and host: it is missing.
Result<int> find_cuda_index(const WorkerDevice& device, const std::vector<CudaDevice>& found);

}  // namespace motley::run

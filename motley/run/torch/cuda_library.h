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
  std::string uuid;  ///< "GPU-8a1c...", as the driver writes it
};

/// What needs CUDA headers: made by libmotley_cuda.so, which lies beside the program and is loaded
/// when a CUDA device is asked for. Everything else reaches CUDA through PyTorch's dispatcher.
class CudaLibrary {
 public:
  virtual ~CudaLibrary() = default;
  virtual Result<std::vector<CudaDevice>> devices() const = 0;
  /// Makes the device the calling thread's current one; allocations beyond `memory` are refused.
  virtual Result<void> use_device(int index, std::optional<Bytes> memory) const = 0;
  /// Collectives by NCCL; as make_host_communicator. The link of the groups is not emulated.
  virtual Result<std::unique_ptr<Communicator>> make_nccl_communicator(
      Rendezvous& rendezvous, const CommunicatorOptions& options, int device) const = 0;
  /// Of the devices; live as long as this.
  virtual const DeviceKernels& kernels() const = 0;
  /// Their code for an architecture ("sm_90", "compute_90"), as compile_kernels; needs no device.
  virtual Result<std::string> kernel_code(const std::string& architecture) const = 0;
};

/// Loads NVIDIA's driver, PyTorch's CUDA half and libmotley_cuda.so, once. Must come before ATen is
/// asked anything about CUDA: its first answer "no CUDA" stays. Our kernels are there from then on.
/// Runtime error "run.no-cuda" that says which of the three is missing.
Result<const CudaLibrary*> load_cuda();

struct WorkerDevice;
/// The ordinal of a GPU among those that this host has: by its UUID, whatever the driver's order,
/// or where none is said by `local_index`. Stale error "host.device" (exit 4) that names device and
/// host if it is not there.
Result<int> find_cuda_index(const WorkerDevice& device, const std::vector<CudaDevice>& found);

}  // namespace motley::run

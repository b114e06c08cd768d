#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>

#include "motley/run/torch/cuda/kernels.h"
#include "motley/run/torch/cuda/nccl_communicator.h"
#include "motley/run/torch/cuda_library.h"
#include "motley/run/torch/exchange/failure.h"

namespace motley::run {
namespace {

class Library final : public CudaLibrary {
 public:
  Result<std::vector<CudaDevice>> devices() const override;
  Result<void> use_device(int index, std::optional<Bytes> memory) const override;
  Result<std::unique_ptr<Communicator>> make_nccl_communicator(Rendezvous& rendezvous,
                                                               const CommunicatorOptions& options,
                                                               int device) const override {
    return make_nccl_process_groups(rendezvous, options, device);
  }
  const DeviceKernels& kernels() const override { return *kernels_; }
  Result<std::string> kernel_code(const std::string& architecture) const override {
    return compile_kernels(architecture);
  }

 private:
  std::unique_ptr<DeviceKernels> kernels_ = make_nvrtc_kernels();
};

tl::unexpected<Error> cuda_error(const std::string& what) {
  return runtime_error("run.no-cuda", what);
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

Result<std::vector<CudaDevice>> Library::devices() const {
  int count = 0;
  if (const cudaError_t fault = ::cudaGetDeviceCount(&count); fault != cudaSuccess)
    return cuda_error(fmt::format("CUDA: {}", ::cudaGetErrorString(fault)));
  std::vector<CudaDevice> devices;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    if (const cudaError_t fault = ::cudaGetDeviceProperties(&properties, index);
        fault != cudaSuccess)
      return cuda_error(fmt::format("CUDA device {}: {}", index, ::cudaGetErrorString(fault)));
    devices.push_back(
        {index, properties.name, fmt::format("{}.{}", properties.major, properties.minor),
         Bytes(static_cast<std::int64_t>(properties.totalGlobalMem)), uuid_text(properties.uuid)});
  }
  return devices;
}

Result<void> Library::use_device(int index, std::optional<Bytes> memory) const {
  MOTLEY_ASSIGN(const std::vector<CudaDevice> found, devices());
  if (index >= static_cast<int>(found.size()))
    return cuda_error(
        fmt::format("cuda device {} was asked for, this host has {}", index, found.size()));
  try {
    const auto device = static_cast<c10::DeviceIndex>(index);
    c10::cuda::set_device(device);
    c10::cuda::CUDACachingAllocator::init(static_cast<int>(found.size()));
    if (memory)
      c10::cuda::CUDACachingAllocator::setMemoryFraction(
          std::min(1.0, *memory / found[static_cast<std::size_t>(index)].memory), device);
    return {};
  } catch (const std::exception& fault) {
    return cuda_error(fmt::format("cuda device {}: {}", index, failure_text(fault)));
  }
}

}  // namespace
}  // namespace motley::run

/// The symbol that load_cuda() looks up.
extern "C" const motley::run::CudaLibrary* motley_cuda_library() {
  static const motley::run::Library library;
  return &library;
}

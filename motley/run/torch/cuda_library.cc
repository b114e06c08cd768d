#include "motley/run/torch/cuda_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "motley/base/text.h"
#include "motley/run/job.h"

namespace motley::run {
namespace {

using MakeLibrary = const CudaLibrary* (*)();

tl::unexpected<Error> no_cuda(const std::string& what, const std::string& advice) {
  return runtime_error("run.no-cuda",
                       fmt::format("a cuda device was asked for, but {}; {}", what, advice));
}

/// Loads a library for good. Returns the loader's error; empty on success.
std::string load(const std::string& name, int flags) {
  return ::dlopen(name.c_str(), flags) != nullptr ? "" : ::dlerror();
}

std::string library_beside_program() {
  std::error_code fault;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", fault);
  return (program.parent_path() / "libmotley_cuda.so").string();
}

Result<const CudaLibrary*> load_all() {
  if (!load("libcuda.so.1", RTLD_NOW).empty())
    return no_cuda("this host has no NVIDIA driver (libcuda.so.1)",
                   "install the driver, or use cpu devices");
  // The bare name is found because the program's run path contains PyTorch's folder.
  if (const std::string fault = load("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL); !fault.empty())
    return no_cuda("PyTorch's CUDA library does not load (" + fault + ")",
                   "install a PyTorch with CUDA");
  const std::string path = library_beside_program();
  void* library = ::dlopen(path.c_str(), RTLD_NOW);
  if (library == nullptr)
    return no_cuda(fmt::format("{} does not load ({})", path, ::dlerror()),
                   "build again with the nvidia packages of PyTorch installed");
  const auto make = reinterpret_cast<MakeLibrary>(::dlsym(library, "motley_cuda_library"));
  if (make == nullptr) return no_cuda(path + " is not ours", "build again");
  const CudaLibrary* loaded = make();
  set_device_kernels(loaded->kernels());
  return loaded;
}

}  // namespace

Result<int> find_cuda_index(const WorkerDevice& device, const std::vector<CudaDevice>& found) {
  std::vector<std::string> there;
  for (const CudaDevice& each : found) {
    if (device.uuid.empty() ? each.index == device.local_index : each.uuid == device.uuid)
      return each.index;
    there.push_back(fmt::format("{} ({})", each.uuid, each.name));
  }
  return stale_error(
      "host.device",
      fmt::format("device {}: {} has no GPU {}; it has {}; probe again", device.name,
                  device.host.empty() ? "this host" : "host " + device.host,
                  device.uuid.empty() ? fmt::format("{}", device.local_index) : device.uuid,
                  there.empty() ? "none" : join(there, ", ")));
}

Result<const CudaLibrary*> load_cuda() {
  static const Result<const CudaLibrary*> library = load_all();
  return library;
}

}  // namespace motley::run

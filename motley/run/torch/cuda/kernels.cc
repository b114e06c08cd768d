#include "motley/run/torch/cuda/kernels.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nvrtc.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/run/torch/cuda/kernel_texts.h"

namespace motley::run {
namespace {

/// NVRTC has no standard library.
constexpr std::pair<const char*, const char*> kStandardHeaders[] = {
    {"algorithm",
     "#pragma once\nnamespace std { template <typename T> const T& min(const T& a, const T& b) "
     "{ return b < a ? b : a; } }"},
    {"bit",
     "#pragma once\nnamespace std { template <typename To, typename From> To bit_cast(const From& "
     "from) { return __builtin_bit_cast(To, from); } }"},
    {"cmath", "#pragma once\nnamespace std { using ::floor; }"},
    {"cstdint",
     "#pragma once\nnamespace std { using uint8_t = unsigned char; using uint16_t = unsigned "
     "short; using uint32_t = unsigned; using uint64_t = unsigned long; using int64_t = long; }"},
};

constexpr const char* kDraw = "motley_draw";
constexpr const char* kDrop = "motley_drop";
constexpr const char* kKernels = R"(
#include "motley/run/torch/operators/random_kernels.h"
std::int64_t thread_number() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
extern "C" __global__ void motley_draw(motley::run::DrawCall call) {
  motley::run::draw_elements(call, thread_number());
}
extern "C" __global__ void motley_drop(motley::run::DropoutCall call) {
  motley::run::drop_elements(call, thread_number());
}
)";

/// An NVRTC program and what its functions return; no error is lost.
class NvrtcProgram {
 public:
  NvrtcProgram() {
    std::vector<const char*> names, texts;
    for (const auto& [name, text] : kStandardHeaders) {
      names.push_back(name);
      texts.push_back(text);
    }
    for (const KernelText& each : kernel_texts()) {
      names.push_back(each.name);
      texts.push_back(each.text);
    }
    status_ = ::nvrtcCreateProgram(&program_, kKernels, "motley_kernels.cu",
                                   static_cast<int>(names.size()), texts.data(), names.data());
  }
  ~NvrtcProgram() { ::nvrtcDestroyProgram(&program_); }
  NvrtcProgram(const NvrtcProgram&) = delete;
  NvrtcProgram& operator=(const NvrtcProgram&) = delete;

  bool compile(const std::vector<const char*>& flags) {
    if (status_ == NVRTC_SUCCESS)
      status_ = ::nvrtcCompileProgram(program_, static_cast<int>(flags.size()), flags.data());
    return status_ == NVRTC_SUCCESS;
  }
  template <typename Size, typename Get>
  std::string read(const Size& size_of, const Get& get) {
    std::size_t size = 0;
    if (size_of(program_, &size) != NVRTC_SUCCESS) return "";
    std::string text(size, '\0');
    if (get(program_, text.data()) != NVRTC_SUCCESS) return "";
    return text;
  }
  std::string fault() {
    const std::string log = read(::nvrtcGetProgramLogSize, ::nvrtcGetProgramLog);
    return fmt::format("{}: {}", ::nvrtcGetErrorString(status_), log.c_str());
  }

 private:
  nvrtcProgram program_ = nullptr;
  nvrtcResult status_;
};

void check(cudaError_t status, const char* kernel, const char* what) {
  TORCH_CHECK(status == cudaSuccess, "kernel ", kernel, ": ", what, ": ",
              ::cudaGetErrorString(status));
}

struct LoadedKernels {
  cudaKernel_t draw = nullptr, drop = nullptr;
};

LoadedKernels load_kernels(int capability, const char* wanted) {
  const auto architecture = kernel_architecture(capability);
  TORCH_CHECK(architecture.has_value(), "kernel ", wanted, ": ", architecture.error().message);
  const auto code = compile_kernels(*architecture);
  TORCH_CHECK(code.has_value(), "kernel ", wanted, ": ", code.error().message);
  // Stays loaded for the process; the runtime passes it to each device that uses it.
  cudaLibrary_t library = nullptr;
  check(::cudaLibraryLoadData(&library, code->data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        wanted, "cudaLibraryLoadData");
  LoadedKernels loaded;
  check(::cudaLibraryGetKernel(&loaded.draw, library, kDraw), kDraw, "cudaLibraryGetKernel");
  check(::cudaLibraryGetKernel(&loaded.drop, library, kDrop), kDrop, "cudaLibraryGetKernel");
  return loaded;
}

class NvrtcKernels final : public DeviceKernels {
 public:
  void draw(const DrawCall& call, at::Device device) const override {
    launch(kDraw, &LoadedKernels::draw, call, device);
  }
  void drop(const DropoutCall& call, at::Device device) const override {
    launch(kDrop, &LoadedKernels::drop, call, device);
  }

 private:
  const LoadedKernels& loaded(at::Device device, const char* wanted) const {
    int major = 0, minor = 0;
    check(::cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index()),
          wanted, "cudaDeviceGetAttribute");
    check(::cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index()),
          wanted, "cudaDeviceGetAttribute");
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = loaded_.try_emplace(10 * major + minor);
    if (is_new) {
      try {
        place->second = load_kernels(place->first, wanted);
      } catch (...) {
        loaded_.erase(place);
        throw;
      }
    }
    return place->second;
  }

  template <typename Call>
  void launch(const char* name, cudaKernel_t LoadedKernels::*kernel, Call call,
              at::Device device) const {
    constexpr std::int64_t kBlock = 256;
    const std::int64_t threads = kernel_threads(call.elements.count);
    if (threads == 0) return;
    const LoadedKernels& found = loaded(device, name);
    const c10::cuda::CUDAGuard guard(device);
    void* arguments[] = {&call};
    const std::int64_t blocks = (threads + kBlock - 1) / kBlock;
    TORCH_CHECK(blocks <= std::int64_t{0x7FFFFFFF}, "kernel ", name, ": ", call.elements.count,
                " elements are more than it can have");
    check(::cudaLaunchKernel(reinterpret_cast<const void*>(found.*kernel),
                             dim3(static_cast<unsigned>(blocks)), dim3(kBlock), arguments, 0,
                             c10::cuda::getCurrentCUDAStream(device.index())),
          name, "cudaLaunchKernel");
  }

  mutable std::mutex mutex_;
  mutable std::map<int, LoadedKernels> loaded_;  // by capability
};

}  // namespace

Result<std::string> compile_kernels(const std::string& architecture) {
  const std::string flag = "--gpu-architecture=" + architecture;
  NvrtcProgram program;
  if (!program.compile(
          {flag.c_str(), "--std=c++20", "--fmad=false", "--device-as-default-execution-space"}))
    return runtime_error("run.kernels", fmt::format("kernels for {} do not compile: {}",
                                                    architecture, program.fault()));
  std::string code = architecture.starts_with("sm_")
                         ? program.read(::nvrtcGetCUBINSize, ::nvrtcGetCUBIN)
                         : program.read(::nvrtcGetPTXSize, ::nvrtcGetPTX);
  if (code.empty())
    return runtime_error("run.kernels", fmt::format("kernels for {}: no code", architecture));
  return code;
}

Result<std::string> kernel_architecture(int capability) {
  int count = 0;
  std::vector<int> known;
  if (::nvrtcGetNumSupportedArchs(&count) == NVRTC_SUCCESS) known.resize(count);
  if (known.empty() || ::nvrtcGetSupportedArchs(known.data()) != NVRTC_SUCCESS)
    return runtime_error("run.kernels", "NVRTC does not say which devices it compiles for");
  const auto above = std::upper_bound(known.begin(), known.end(), capability);
  if (above == known.begin())
    return runtime_error(
        "run.kernels",
        fmt::format("found a GPU of capability {}.{}, wanted {}.{} or more", capability / 10,
                    capability % 10, known.front() / 10, known.front() % 10));
  const int best = *(above - 1);
  return fmt::format("{}_{}", best == capability ? "sm" : "compute", best);
}

std::unique_ptr<DeviceKernels> make_nvrtc_kernels() { return std::make_unique<NvrtcKernels>(); }

}  // namespace motley::run

#include "motley/run/torch/cuda_library.h"

#include <ATen/ops/randn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "motley/run/torch/operators/distributions.h"
#include "motley/run/torch/operators/dropout.h"
#include "motley/run/torch/worker_session.h"
#include "motley/testing/places.h"

namespace motley::run {
namespace {

bool has_driver() { return ::dlopen("libcuda.so.1", RTLD_NOW) != nullptr; }

TEST(CudaLibrary, WithoutADriverIsOneClearMessage) {
  if (has_driver()) GTEST_SKIP() << "this host has a driver";
  const auto cuda = load_cuda();
  ASSERT_FALSE(cuda.has_value());
  EXPECT_EQ(cuda.error(), (Error{ErrorKind::kRuntime, "run.no-cuda",
                                 "a cuda device was asked for, but this host has no NVIDIA driver "
                                 "(libcuda.so.1); install the driver, or use cpu devices"}));
  WorkerDevice device{.name = "a:0", .kind = "cuda"};
  EXPECT_EQ(set_up_device(device).error().code, "run.no-cuda");
}

TEST(CudaLibrary, FindsAGpuByItsUuidWhateverItsOrdinal) {
  const std::vector<CudaDevice> found = {{0, "A10", "8.6", Bytes(1), "GPU-b"},
                                         {1, "A10", "8.6", Bytes(1), "GPU-a"}};
  WorkerDevice device{.name = "n:0", .kind = "cuda", .host = "n"};
  EXPECT_EQ(find_cuda_index(device, found), 0);
  device.uuid = "GPU-a";
  EXPECT_EQ(find_cuda_index(device, found), 1);
  device.uuid = "GPU-c";
  const auto missing = find_cuda_index(device, found);
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error(),
            (Error{ErrorKind::kStale, "host.device",
                   "device n:0: host n has no GPU GPU-c; it has GPU-b (A10), GPU-a (A10); probe "
                   "again"}));
}

/// Loads libmotley_cuda.so as load_cuda does, but without the driver. Null: not built.
const CudaLibrary* load_without_driver() {
  const std::string kPath = testing::build_path("libmotley_cuda.so");
  if (!std::filesystem::exists(kPath)) return nullptr;
  ::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
  void* library = ::dlopen(kPath.c_str(), RTLD_NOW);
  if (library == nullptr) {
    ADD_FAILURE() << ::dlerror();
    return nullptr;
  }
  using Make = const CudaLibrary* (*)();
  return reinterpret_cast<Make>(::dlsym(library, "motley_cuda_library"))();
}

/// Counts how often a word begins an instruction.
int count_of(const std::string& code, const std::string& word) {
  int count = 0;
  for (std::size_t at = code.find(word); at != std::string::npos; at = code.find(word, at + 1))
    ++count;
  return count;
}

TEST(CudaKernels, CompileForOldAndNewGpus) {
  const CudaLibrary* cuda = load_without_driver();
  if (cuda == nullptr) GTEST_SKIP() << "kernels compile by NVRTC (no libmotley_cuda.so here)";
  for (const char* architecture : {"sm_75", "sm_90", "sm_120"}) {
    const auto code = cuda->kernel_code(architecture);
    ASSERT_TRUE(code.has_value()) << code.error().message;
    EXPECT_EQ(code->substr(1, 3), "ELF") << architecture;
  }
}

TEST(CudaKernels, FuseNoProductWithASum) {
  const CudaLibrary* cuda = load_without_driver();
  if (cuda == nullptr) GTEST_SKIP() << "kernels round as CPUs (no libmotley_cuda.so here)";
  const auto code = cuda->kernel_code("compute_80");
  ASSERT_TRUE(code.has_value()) << code.error().message;
  EXPECT_EQ(count_of(*code, "fma."), 0);
  EXPECT_EQ(count_of(*code, ".approx"), 0);  // no approximate quotients
  EXPECT_EQ(count_of(*code, ".ftz"), 0);     // no flush of small numbers to zero
  // Without an explicit rounding the assembler might fuse them.
  for (const char* word : {"mul.f", "add.f", "sub.f"}) EXPECT_EQ(count_of(*code, word), 0) << word;
  EXPECT_GT(count_of(*code, "mul.rn.f64"), 0);
  EXPECT_GT(count_of(*code, "div.rn.f64"), 0);
  EXPECT_EQ(count_of(*code, ".entry motley_"), 2);
}

TEST(CudaKernels, WhatDoesNotCompileIsSaid) {
  const CudaLibrary* cuda = load_without_driver();
  if (cuda == nullptr) GTEST_SKIP() << "faults of kernels are named (no libmotley_cuda.so here)";
  const auto code = cuda->kernel_code("sm_1");
  ASSERT_FALSE(code.has_value());
  EXPECT_EQ(code.error().code, "run.kernels");
  EXPECT_TRUE(code.error().message.starts_with("kernels for sm_1 do not compile: NVRTC_ERROR_"))
      << code.error().message;
}

TEST(CudaKernels, WhatDoesNotStartIsAnErrorThatNamesTheKernel) {
  const CudaLibrary* cuda = load_without_driver();
  if (cuda == nullptr || has_driver()) GTEST_SKIP() << "kernels start on this host";
  try {
    cuda->kernels().drop({.elements = {.count = 1}}, at::Device(at::kCUDA, 0));
    FAIL() << "it started";
  } catch (const c10::Error& fault) {
    EXPECT_TRUE(
        std::string(fault.what()).starts_with("kernel motley_drop: cudaDeviceGetAttribute: "))
        << fault.what();
  }
}

TEST(CudaKernels, GiveTheBitsOfCpus) {
  if (!has_driver()) GTEST_SKIP() << "this host has no CUDA device";
  ASSERT_TRUE(load_cuda().has_value());
  const at::Device gpu(at::kCUDA, 0);
  const RandomStream stream{0xfedcba9876543210ULL, 1000, 17};
  const ElementPlace place{4, 33, 3, 11, 2 * 11 * 33, 1, 3};
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const Distribution distribution :
         {Distribution::kUniform, Distribution::kExponential, Distribution::kNormal}) {
      const Draw what{distribution, {4, 5, 33}, dtype, place};
      EXPECT_TRUE(draw(what, stream, gpu).cpu().equal(draw(what, stream, at::kCPU))) << dtype;
    }
    const at::Tensor x = at::randn({4, 5, 33}).to(dtype);
    const auto [out, mask] = dropout(x, 0.3, place, stream);
    const auto [out_there, mask_there] = dropout(x.to(gpu), 0.3, place, stream);
    EXPECT_TRUE(out_there.cpu().equal(out) && mask_there.cpu().equal(mask)) << dtype;
  }
}

TEST(CudaLibrary, ListsAndUsesDevices) {
  if (!has_driver()) GTEST_SKIP() << "this host has no CUDA device";
  const auto cuda = load_cuda();
  ASSERT_TRUE(cuda.has_value()) << cuda.error().message;
  const auto devices = (*cuda)->devices();
  ASSERT_TRUE(devices.has_value()) << devices.error().message;
  ASSERT_FALSE(devices->empty());
  EXPECT_GT(devices->front().memory.value, 0);
  EXPECT_TRUE((*cuda)->use_device(0, std::nullopt).has_value());
  const auto count = static_cast<int>(devices->size());
  EXPECT_FALSE((*cuda)->use_device(count, std::nullopt).has_value());
}

TEST(CudaLibrary, NcclConnectsOneDevice) {
  if (!has_driver()) GTEST_SKIP() << "this host has no CUDA device";
  const auto cuda = load_cuda();
  ASSERT_TRUE(cuda.has_value()) << cuda.error().message;
  RendezvousOptions options;
  options.file = ::testing::TempDir() + "motley-nccl-" + std::to_string(::getpid());
  auto rendezvous = Rendezvous::open(options);
  ASSERT_TRUE(rendezvous.has_value());
  const CommunicatorOptions groups{{{{0}, {}}}, Seconds(60), true};
  const auto communicator = (*cuda)->make_nccl_communicator(**rendezvous, groups, 0);
  ASSERT_TRUE(communicator.has_value()) << communicator.error().message;
  EXPECT_EQ((*communicator)->transport(), "nccl");
  std::filesystem::remove(options.file);
}

}  // namespace
}  // namespace motley::run

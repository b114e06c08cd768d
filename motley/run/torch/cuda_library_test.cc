#include "motley/run/torch/cuda_library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "motley/run/torch/worker_session.h"

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

#include "motley/cluster/cuda_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace motley::cluster {
namespace {

using ::testing::ElementsAre;

/// State of the fake libraries, global because C functions take no context.
struct FakeGpus {
  int count = 0, fault = 0;
  std::set<std::pair<int, int>> access, nvlink;  // one way
  int opened = 0;                                // times the management library was opened
} fake;

int fake_init(unsigned) { return fake.fault; }
int fake_count(int* count) {
  *count = fake.count;
  return 0;
}
int fake_get(int* device, int ordinal) {
  *device = 100 + ordinal;
  return ordinal < fake.count ? 0 : 101;
}
int fake_name(char* name, int, int device) {
  std::strcpy(name, device == 100 ? "NVIDIA A\n10" : "NVIDIA A10");
  return 0;
}
int fake_memory(std::size_t* bytes, int) {
  *bytes = std::size_t{22} << 30;
  return 0;
}
int fake_uuid(unsigned char* bytes, int device) {
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<unsigned char>(i == 15 ? device - 100 : i);
  return 0;
}
int fake_access(int* can, int device, int peer) {
  *can = static_cast<int>(fake.access.count({device - 100, peer - 100}));
  return 0;
}
int fake_open() {
  ++fake.opened;
  return 0;
}
int fake_close() {
  --fake.opened;
  return 0;
}
int fake_handle(const char* uuid, void** device) {
  static int places[16];
  *device = &places[uuid[std::strlen(uuid) - 1] - '0'];
  return std::strncmp(uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0", 39) == 0 ? 0 : 6;
}
int fake_status(void* device, void* peer, int capability, int* status) {
  void* first = nullptr;
  fake_handle("GPU-00010203-0405-0607-0809-0a0b0c0d0e00", &first);
  const auto index = [&](void* each) {
    return static_cast<int>(static_cast<int*>(each) - static_cast<int*>(first));
  };
  if (capability != 2) return 2;
  *status = fake.nvlink.count({index(device), index(peer)}) != 0 ? 0 : 5;
  return 0;
}

using Functions = std::map<std::string, void*>;

template <typename Function>
void* address(Function* function) {
  return reinterpret_cast<void*>(function);
}

Functions driver() {
  return {{"cuInit", address(fake_init)},
          {"cuDeviceGetCount", address(fake_count)},
          {"cuDeviceGet", address(fake_get)},
          {"cuDeviceGetName", address(fake_name)},
          {"cuDeviceTotalMem_v2", address(fake_memory)},
          {"cuDeviceGetUuid", address(fake_uuid)},
          {"cuDeviceCanAccessPeer", address(fake_access)}};
}

Functions management() {
  return {{"nvmlInit_v2", address(fake_open)},
          {"nvmlShutdown", address(fake_close)},
          {"nvmlDeviceGetHandleByUUID", address(fake_handle)},
          {"nvmlDeviceGetP2PStatus", address(fake_status)}};
}

FindFunction in(Functions functions) {
  return [functions = std::move(functions)](const char* name) -> void* {
    const auto found = functions.find(name);
    return found == functions.end() ? nullptr : found->second;
  };
}

Functions without(Functions functions, const char* name) {
  functions.erase(name);
  return functions;
}

/// Adds the pairs in both directions.
void join_pairs(std::set<std::pair<int, int>>& set, std::set<std::pair<int, int>> pairs) {
  for (const auto& [a, b] : pairs) set.insert({{a, b}, {b, a}});
}

TEST(CudaDriver, DescribesDevices) {
  fake = {.count = 2};
  const CudaDevices found = list_cuda_devices(in(driver()), in(management()));
  ASSERT_EQ(found.devices.size(), 2U);
  EXPECT_EQ(found.devices[0].name, "NVIDIA A10");  // cleaned into one line
  EXPECT_EQ(found.devices[1].memory, Bytes(std::int64_t{22} << 30));
  EXPECT_EQ(found.devices[1].uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0e01");
  EXPECT_EQ(found.notes[0], "cuda: 2 devices");
  EXPECT_EQ(fake.opened, 0);
}

TEST(CudaDriver, SaysHowDevicesReachEachOther) {
  fake = {.count = 4};
  join_pairs(fake.access, {{0, 1}, {2, 3}, {0, 2}});
  join_pairs(fake.nvlink, {{0, 1}, {2, 3}});
  fake.access.insert({1, 2});  // one direction does not count
  const CudaDevices bridged = list_cuda_devices(in(driver()), in(management()));
  EXPECT_EQ(bridged.peers, "host");
  EXPECT_THAT(bridged.notes, ElementsAre("cuda: 4 devices",
                                         "cuda: devices reach each other by nvlink 0-1 2-3, by bus "
                                         "0-2, by host 0-3 1-2 1-3"));
  fake.count = 2;
  EXPECT_EQ(list_cuda_devices(in(driver()), in(management())).peers, "nvlink");
  fake.nvlink.clear();
  EXPECT_EQ(list_cuda_devices(in(driver()), in(management())).peers, "bus");
  fake.access.clear();
  // This needs no management library.
  EXPECT_EQ(list_cuda_devices(in(driver()), nullptr).peers, "host");
}

TEST(CudaDriver, OneDeviceHasNoPeers) {
  fake = {.count = 1};
  const CudaDevices found = list_cuda_devices(in(driver()), in(management()));
  EXPECT_EQ(found.peers, "");
  EXPECT_THAT(found.notes, ElementsAre("cuda: 1 device"));
}

TEST(CudaDriver, SaysNothingOfPeersThatItCannotKnow) {
  fake = {.count = 2};
  join_pairs(fake.access, {{0, 1}});
  join_pairs(fake.nvlink, {{0, 1}});
  for (const auto& [name, function] : management()) {
    const CudaDevices found =
        list_cuda_devices(in(driver()), in(without(management(), name.c_str())));
    EXPECT_EQ(found.peers, "") << name;
    EXPECT_THAT(found.notes,
                ElementsAre("cuda: 2 devices", "cuda: devices reach each other not known how 0-1"));
    EXPECT_EQ(fake.opened, 0);
  }
  for (const char* name : {"cuDeviceCanAccessPeer", "cuDeviceGetUuid"})
    EXPECT_EQ(list_cuda_devices(in(without(driver(), name)), in(management())).peers, "") << name;
}

TEST(CudaDriver, WithoutALibraryOrAFunctionSaysWhy) {
  fake = {.count = 2};
  EXPECT_THAT(list_cuda_devices(nullptr, nullptr).notes,
              ElementsAre("cuda: no driver library (libcuda.so.1)"));
  EXPECT_THAT(list_cuda_devices(in(without(driver(), "cuInit")), nullptr).notes,
              ElementsAre("cuda: the driver library lacks a function; is it older than CUDA 3.2?"));
  fake.fault = 100;
  EXPECT_THAT(list_cuda_devices(in(driver()), nullptr).notes,
              ElementsAre("cuda: the driver does not start (error 100)"));
}

}  // namespace
}  // namespace motley::cluster

#include "motley/cluster/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <memory>

namespace motley::cluster {
namespace {

// The few functions of the driver's C interface that are needed. 0 is success everywhere.
struct Driver {
  int (*init)(unsigned flags) = nullptr;
  int (*count)(int* count) = nullptr;
  int (*get)(int* device, int ordinal) = nullptr;
  int (*name)(char* name, int length, int device) = nullptr;
  int (*memory)(std::size_t* bytes, int device) = nullptr;
  int (*uuid)(unsigned char* bytes, int device) = nullptr;  ///< 16; may be missing
};

template <typename Function>
bool load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool load_driver(void* library, Driver& driver) {
  load(library, "cuDeviceGetUuid", driver.uuid);
  return load(library, "cuInit", driver.init) && load(library, "cuDeviceGetCount", driver.count) &&
         load(library, "cuDeviceGet", driver.get) &&
         load(library, "cuDeviceGetName", driver.name) &&
         load(library, "cuDeviceTotalMem_v2", driver.memory);
}

// One line of printable ASCII: the name goes into a cluster file.
std::string clean(const char* text) {
  std::string result;
  for (; *text != '\0'; ++text) {
    if (*text >= ' ' && *text <= '~') result += *text;
  }
  return result;
}

std::string find_uuid(const Driver& driver, int device) {
  std::array<unsigned char, 16> bytes{};
  if (driver.uuid == nullptr || driver.uuid(bytes.data(), device) != 0) return "";
  std::string text = "GPU";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

CudaDevices ask(const Driver& driver) {
  CudaDevices found;
  int count = 0;
  if (const int code = driver.init(0); code != 0) {
    found.note = fmt::format("cuda: the driver does not start (error {})", code);
    return found;
  }
  if (const int code = driver.count(&count); code != 0) {
    found.note = fmt::format("cuda: the driver does not count its devices (error {})", code);
    return found;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int device = 0;
    std::size_t bytes = 0;
    std::array<char, 256> name{};
    if (driver.get(&device, ordinal) != 0 || driver.memory(&bytes, device) != 0 ||
        driver.name(name.data(), static_cast<int>(name.size()) - 1, device) != 0) {
      found.note = fmt::format(
          "cuda: device {} of {} does not answer; left out with those after it", ordinal, count);
      return found;
    }
    found.devices.push_back(
        {clean(name.data()), Bytes(static_cast<std::int64_t>(bytes)), find_uuid(driver, device)});
  }
  found.note = fmt::format("cuda: {} device{}", count, count == 1 ? "" : "s");
  return found;
}

}  // namespace

CudaDevices list_cuda_devices() {
  const std::unique_ptr<void, int (*)(void*)> library(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL),
                                                      &dlclose);
  if (library == nullptr) return {{}, "cuda: no driver library (libcuda.so.1)"};
  Driver driver;
  if (!load_driver(library.get(), driver)) {
    return {{}, "cuda: the driver library lacks a function; is it older than CUDA 3.2?"};
  }
  return ask(driver);
}

}  // namespace motley::cluster

#include "motley/cluster/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>

#include "motley/base/text.h"

namespace motley::cluster {
namespace {

// The functions used of the driver's C interface. Each returns 0 for success.
struct Driver {
  int (*init)(unsigned flags) = nullptr;
  int (*count)(int* count) = nullptr;
  int (*get)(int* device, int ordinal) = nullptr;
  int (*name)(char* name, int length, int device) = nullptr;
  int (*memory)(std::size_t* bytes, int device) = nullptr;
  // Optional.
  int (*uuid)(unsigned char* bytes, int device) = nullptr;  ///< 16
  int (*can_access)(int* can, int device, int peer) = nullptr;
};

/// The functions used of the management library, whose devices are pointers.
struct Management {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*get)(const char* uuid, void** device) = nullptr;
  int (*status)(void* device, void* peer, int capability, int* status) = nullptr;
};

template <typename Function>
bool load(const FindFunction& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(library(name));
  return function != nullptr;
}

bool load_driver(const FindFunction& library, Driver& driver) {
  load(library, "cuDeviceGetUuid", driver.uuid);
  load(library, "cuDeviceCanAccessPeer", driver.can_access);
  return load(library, "cuInit", driver.init) && load(library, "cuDeviceGetCount", driver.count) &&
         load(library, "cuDeviceGet", driver.get) &&
         load(library, "cuDeviceGetName", driver.name) &&
         load(library, "cuDeviceTotalMem_v2", driver.memory);
}

// Cleans a name into one line of printable ASCII, as it goes into a cluster file.
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

/// Tells which devices NVLink joins. Holds the management library open.
class NvLinks {
 public:
  explicit NvLinks(const FindFunction& library) {
    if (!library || !load(library, "nvmlInit_v2", calls_.init) ||
        !load(library, "nvmlShutdown", calls_.shutdown) ||
        !load(library, "nvmlDeviceGetHandleByUUID", calls_.get) ||
        !load(library, "nvmlDeviceGetP2PStatus", calls_.status))
      return;
    is_open_ = calls_.init() == 0;
  }
  ~NvLinks() {
    if (is_open_) calls_.shutdown();
  }
  NvLinks(const NvLinks&) = delete;
  NvLinks& operator=(const NvLinks&) = delete;

  /// Returns whether NVLink joins two devices; empty if unknown.
  std::optional<bool> join(const DriverDevice& a, const DriverDevice& b) const {
    constexpr int kNvLink = 2;  // NVML_P2P_CAPS_INDEX_NVLINK; status 0 is "ok"
    void *first = nullptr, *second = nullptr;
    int status = 0;
    if (!is_open_ || calls_.get(a.uuid.c_str(), &first) != 0 ||
        calls_.get(b.uuid.c_str(), &second) != 0 ||
        calls_.status(first, second, kNvLink, &status) != 0)
      return std::nullopt;
    return status == 0;
  }

 private:
  Management calls_;
  bool is_open_ = false;
};

/// Fastest first.
constexpr std::array<const char*, 3> kPeerWays = {"nvlink", "bus", "host"};

/// Returns how two devices reach each other; "" if unknown.
std::string find_way(const Driver& driver, const NvLinks& links,
                     const std::vector<DriverDevice>& devices, std::pair<int, int> pair) {
  std::array<int, 2> ids{}, can{};
  if (driver.can_access == nullptr || driver.get(ids.data(), pair.first) != 0 ||
      driver.get(&ids[1], pair.second) != 0 || driver.can_access(can.data(), ids[0], ids[1]) != 0 ||
      driver.can_access(&can[1], ids[1], ids[0]) != 0)
    return "";
  if (can[0] == 0 || can[1] == 0) return "host";
  const auto joined = links.join(devices[static_cast<std::size_t>(pair.first)],
                                 devices[static_cast<std::size_t>(pair.second)]);
  return !joined ? "" : *joined ? "nvlink" : "bus";
}

void find_peers(const Driver& driver, const NvLinks& links, CudaDevices& found) {
  const auto count = static_cast<int>(found.devices.size());
  if (count < 2) return;
  std::map<std::string, std::vector<std::string>> pairs;
  for (int a = 0; a < count; ++a)
    for (int b = a + 1; b < count; ++b)
      pairs[find_way(driver, links, found.devices, {a, b})].push_back(fmt::format("{}-{}", a, b));
  std::vector<std::string> parts;
  for (const char* way : kPeerWays) {
    if (pairs.count(way) == 0) continue;
    parts.push_back(fmt::format("by {} {}", way, motley::join(pairs[way], " ")));
    found.peers = way;
  }
  if (pairs.count("") != 0) {
    parts.push_back("not known how " + motley::join(pairs[""], " "));
    found.peers = "";
  }
  found.notes.push_back("cuda: devices reach each other " + motley::join(parts, ", "));
}

CudaDevices ask(const Driver& driver, const NvLinks& links) {
  CudaDevices found;
  int count = 0;
  if (const int code = driver.init(0); code != 0) {
    found.notes.push_back(fmt::format("cuda: the driver does not start (error {})", code));
    return found;
  }
  if (const int code = driver.count(&count); code != 0) {
    found.notes.push_back(
        fmt::format("cuda: the driver does not count its devices (error {})", code));
    return found;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int device = 0;
    std::size_t bytes = 0;
    std::array<char, 256> name{};
    if (driver.get(&device, ordinal) != 0 || driver.memory(&bytes, device) != 0 ||
        driver.name(name.data(), static_cast<int>(name.size()) - 1, device) != 0) {
      found.notes.push_back(fmt::format(
          "cuda: device {} of {} does not answer; left out with those after it", ordinal, count));
      return found;
    }
    found.devices.push_back(
        {clean(name.data()), Bytes(static_cast<std::int64_t>(bytes)), find_uuid(driver, device)});
  }
  found.notes.push_back(fmt::format("cuda: {} device{}", count, count == 1 ? "" : "s"));
  find_peers(driver, links, found);
  return found;
}

}  // namespace

CudaDevices list_cuda_devices(const FindFunction& driver, const FindFunction& management) {
  if (!driver) return {.notes = {"cuda: no driver library (libcuda.so.1)"}};
  Driver calls;
  if (!load_driver(driver, calls))
    return {.notes = {"cuda: the driver library lacks a function; is it older than CUDA 3.2?"}};
  return ask(calls, NvLinks(management));
}

CudaDevices list_cuda_devices() {
  using Library = std::unique_ptr<void, int (*)(void*)>;
  const auto open = [](const char* name) {
    return Library(dlopen(name, RTLD_NOW | RTLD_LOCAL),
                   [](void* library) { return library == nullptr ? 0 : dlclose(library); });
  };
  const auto functions = [](const Library& library) -> FindFunction {
    if (library == nullptr) return nullptr;
    return [handle = library.get()](const char* name) { return dlsym(handle, name); };
  };
  const Library driver = open("libcuda.so.1"), management = open("libnvidia-ml.so.1");
  return list_cuda_devices(functions(driver), functions(management));
}

}  // namespace motley::cluster

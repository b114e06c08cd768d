#include "motley/run/torch/torch_version.h"

#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <cstdint>

// A plain C function of libtorch_cpu: (major << 56) | (minor << 48) | (patch << 40).
extern "C" std::uint64_t aoti_torch_abi_version();

namespace motley::run {
namespace {

std::string minor_of(const std::string& version) { return version.substr(0, version.rfind('.')); }

}  // namespace

std::string built_torch_version() {
  return fmt::format("{}.{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH);
}

std::string loaded_torch_version() {
  const std::uint64_t version = aoti_torch_abi_version();
  return fmt::format("{}.{}.{}", version >> 56, (version >> 48) & 0xff, (version >> 40) & 0xff);
}

Result<void> compare_torch_versions(const std::string& built, const std::string& loaded) {
  if (minor_of(built) == minor_of(loaded)) return {};
  return usage_error("run.torch-version",
                     fmt::format("motley-worker is built for PyTorch {}.*, found PyTorch {}; "
                                 "install {}.* or build again with TORCH_VERSION={}",
                                 minor_of(built), loaded, minor_of(built), loaded));
}

Result<void> check_torch_version() {
  return compare_torch_versions(built_torch_version(), loaded_torch_version());
}

}  // namespace motley::run

#include "motley/base/check.h"
#include "motley/base/safetensors.h"

/// Any bytes give a file or a message; the tensors of a file lie inside the bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = motley::Safetensors::parse(bytes, "f");
  if (!file) return 0;
  std::size_t total = 0;
  for (const auto& [name, tensor] : file->tensors()) {
    for (const std::byte& byte : tensor.bytes) {
      MOTLEY_CHECK(&byte >= bytes.data() + 8 && &byte < bytes.data() + bytes.size());
    }
    total += tensor.bytes.size();
  }
  MOTLEY_CHECK(total <= size);
  return 0;
}

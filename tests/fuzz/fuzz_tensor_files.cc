#include "motley/base/check.h"
#include "motley/run/checkpoints/tensor_files.h"

/// Any safetensors file gives tensors or a message; those that it gives can be read whole.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = motley::Safetensors::parse(std::as_bytes(std::span(data, size)), "f");
  if (!file) return 0;
  const motley::run::TensorFile opened{"f", &*file};
  const auto tensors = motley::run::TensorFiles::make({&opened, 1});
  if (!tensors) return 0;
  for (const auto& [name, view] : file->tensors()) {
    MOTLEY_CHECK(tensors->has(name));
    motley::program::Buffer buffer;
    buffer.name = name;
    buffer.dtype = view.dtype;
    buffer.shape = view.shape;
    std::vector<std::byte> target(view.bytes.size());
    static_cast<void>(tensors->read(buffer, target));
  }
  return 0;
}

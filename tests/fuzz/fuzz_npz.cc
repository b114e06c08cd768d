#include "motley/base/check.h"
#include "motley/data/npz.h"

/// Any bytes give an archive or a message, and each array of one its contents or a message.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const auto array = motley::data::parse_npy(bytes, "f")) {
    MOTLEY_CHECK(array->bytes.size() <= size);
  }
  auto file = motley::data::Npz::parse(bytes, "f");
  if (!file) return 0;
  for (const std::string& name : file->names()) file->array(name);
  return 0;
}

#include "motley/base/check.h"
#include "motley/base/json.h"
#include "tests/fuzz/text_of.h"

/// Any bytes give a document or a message; a document prints and reads back equal.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = motley::fuzz::text_of(data, size);
  const auto json = motley::parse_json(text, "f");
  MOTLEY_CHECK(json.has_value() == motley::parse_sorted_json(text, "f").has_value());
  if (!json) return 0;
  const auto again = motley::parse_json(json->dump(), "f");
  MOTLEY_CHECK(again.has_value() && again->dump() == json->dump());
  return 0;
}

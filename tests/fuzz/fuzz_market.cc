#include "motley/base/check.h"
#include "motley/elastic/market.h"
#include "tests/fuzz/text_of.h"

/// Any text gives a market or a message; a market prints and reads back equal.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto market = motley::elastic::parse_market(motley::fuzz::text_of(data, size), "f");
  if (!market) return 0;
  const std::string text = motley::elastic::print_market(*market);
  const auto again = motley::elastic::parse_market(text, "f");
  MOTLEY_CHECK(again.has_value() && *again == *market && print_market(*again) == text);
  return 0;
}

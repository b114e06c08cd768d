#include "motley/base/check.h"
#include "motley/trace/trace.h"
#include "tests/fuzz/text_of.h"

/// Any text gives a trace or a message; a trace prints and reads back equal, and has measures.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto trace = motley::trace::parse_trace(motley::fuzz::text_of(data, size), "f");
  if (!trace) return 0;
  const std::string text = motley::trace::print_trace(*trace);
  const auto again = motley::trace::parse_trace(text, "f");
  MOTLEY_CHECK(again.has_value() && *again == *trace && print_trace(*again) == text);
  motley::trace::median_step(*trace);
  motley::trace::busy_share(*trace);
  motley::trace::exposed_communication(*trace);
  return 0;
}

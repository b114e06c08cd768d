#include "motley/base/check.h"
#include "motley/program/memory.h"
#include "motley/program/program_text.h"
#include "tests/fuzz/text_of.h"

/// Any text gives a program or a message; a program prints and reads back to the same text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto program = motley::program::parse_program(motley::fuzz::text_of(data, size), "f");
  if (!program) return 0;
  const std::string text = motley::program::print_program(*program);
  const auto again = motley::program::parse_program(text, "f");
  MOTLEY_CHECK(again.has_value() && print_program(*again) == text);
  return 0;
}

#include "motley/base/check.h"
#include "peers/import/csv.h"
#include "tests/fuzz/text_of.h"

/// Any text gives a table or a message; every field of a table is a number or a message.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto table = motley::peers::CsvTable::parse(motley::fuzz::text_of(data, size), "f");
  if (!table) return 0;
  for (std::size_t row = 0; row < table->rows(); ++row) {
    for (std::size_t column = 0; column < table->columns(); ++column) {
      const auto number = table->number(row, column);
      MOTLEY_CHECK(number || number.error().message.starts_with("f:"));
    }
  }
  return 0;
}

#include "motley/base/dtype.h"

#include <array>
#include <cstddef>

namespace motley {
namespace {

struct Row {
  std::string_view name;
  std::int64_t size;
  bool floating;
};

// In the order of the enumerators.
constexpr std::array<Row, 13> kRows = {{{"f64", 8, true},
                                        {"f32", 4, true},
                                        {"f16", 2, true},
                                        {"bf16", 2, true},
                                        {"i64", 8, false},
                                        {"i32", 4, false},
                                        {"i16", 2, false},
                                        {"i8", 1, false},
                                        {"u8", 1, false},
                                        {"bool", 1, false},
                                        {"c64", 8, false},
                                        {"c128", 16, false},
                                        {"none", 0, false}}};
static_assert(kRows.size() == static_cast<std::size_t>(DType::kNone) + 1);

const Row& row(DType dtype) { return kRows[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::string_view dtype_name(DType dtype) { return row(dtype).name; }

std::optional<DType> find_dtype(std::string_view name) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::int64_t dtype_size(DType dtype) { return row(dtype).size; }

bool is_floating(DType dtype) { return row(dtype).floating; }

bool is_complex(DType dtype) { return dtype == DType::kC64 || dtype == DType::kC128; }

}  // namespace motley

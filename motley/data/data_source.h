#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"

namespace motley::data {

/// Where the data is. `token_width` and `seq` are for flat token files only. Of the samples those
/// from `begin` on, before `end`, count; both may count from the end, below 0, and an absent end is
/// the end.
struct DataSource {
  std::string path;      ///< .npz, .safetensors, or a flat token file
  int token_width = 2;   ///< bytes of a token in a flat file: 2 or 4, unsigned
  std::int64_t seq = 0;  ///< window length of a flat token file
  std::int64_t begin = 0;
  std::optional<std::int64_t> end = {};
  bool operator==(const DataSource&) const = default;
};

/// Sets path, begin and end from "FILE" or "FILE[BEGIN:END]", as Python slices; either may be
/// absent. Usage errors.
Result<void> parse_data_path(const std::string& text, DataSource& source);

Json data_source_to_json(const DataSource& source);
Result<DataSource> data_source_from_json(const Json& json, const std::string& where);

}  // namespace motley::data

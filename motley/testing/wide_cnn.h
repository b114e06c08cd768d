#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "motley/base/file.h"
#include "motley/testing/places.h"

namespace motley::testing {

/// Returns the golden CNN with 48 and 96 channels for any batch: work for GPUs. Has batch norms.
inline std::string wide_cnn_text() {
  constexpr std::pair<std::string_view, std::string_view> kWider[] = {
      {"size batch 1 4096", "size batch 1 1048576"},
      {"[batch, 8, ", "[batch, 48, "},
      {"[batch, 16", "[batch, 96"},
      {"[size(batch), 16", "[size(batch), 96"},
      {"[8, 1, 3, 3]", "[48, 1, 3, 3]"},
      {"[16, 8, 3, 3]", "[96, 48, 3, 3]"},
      {"[8]", "[48]"},
      {"[16]", "[96]"},
      {"[10, 16]", "[10, 96]"},
      {"[16, 10]", "[96, 10]"}};
  std::string text = read_file(source_path("tests/golden/graph/cnn.txt")).value();
  for (const auto& [narrow, wide] : kWider)
    for (std::size_t at = text.find(narrow); at != std::string::npos;
         at = text.find(narrow, at + wide.size()))
      text.replace(at, narrow.size(), wide);
  return text;
}

}  // namespace motley::testing

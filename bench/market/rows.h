#pragma once

#include <string>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::bench {

/// Rows of one kind, each an object with `kind`, `case`, `policy` and measurements, and their text.
/// `data`: the folder of MOTLEY_DATA. `is_full`: all cases, else a tenth of the drawn ones.
struct MarketRows {
  std::vector<Json> rows;
  std::string text;
};
using MarketResult = Result<MarketRows>;

MarketResult lifetime_rows(const std::string& data);
MarketResult checkpoint_rows(const std::string& data);
MarketResult left_rows(const std::string& data);
MarketResult market_rows(const std::string& data, bool is_full);

}  // namespace motley::bench

#include "bench/market/rows.h"

namespace motley::bench {

MarketResult left_rows(const std::string&) { return MarketRows(); }

}  // namespace motley::bench

#include "bench/market/rows.h"

namespace motley::bench {

MarketResult market_rows(const std::string&, bool) { return MarketRows(); }

}  // namespace motley::bench

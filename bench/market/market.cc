// Rented machines: forecasts of lifetimes, time wasted by checkpoints and losses, time left
// predicted at a loss, and the cost of a job with a deadline over the clairvoyant optimum. Usage:
// bench_market DATA OUT.json [KIND]; DATA holds transient and cm-dare.
#include <fmt/format.h>

#include <cstdlib>
#include <functional>

#include "bench/market/rows.h"
#include "motley/base/file.h"

namespace motley::bench {
namespace {

int run(const std::string& data, const std::string& output, const std::string& only) {
  const char* full = std::getenv("MOTLEY_FULL");
  const bool is_full = full != nullptr && std::string(full) == "1";
  const std::vector<std::pair<std::string, std::function<MarketResult()>>> kinds = {
      {"lifetime", [&] { return lifetime_rows(data); }},
      {"checkpoint", [&] { return checkpoint_rows(data); }},
      {"left", [&] { return left_rows(data); }},
      {"market", [&] { return market_rows(data, is_full); }}};
  Json rows = Json::array();
  for (const auto& [name, find] : kinds) {
    if (!only.empty() && name != only) continue;
    const MarketResult found = find();
    if (!found) {
      fmt::print("{}: missing: {}\n", name, found.error().message);
      continue;
    }
    fmt::print("{}\n", found->text);
    for (const Json& row : found->rows) rows.push_back(row);
  }
  const auto written = write_file_atomic(output, Json{{"rows", rows}}.dump(1) + "\n");
  if (written) return 0;
  fmt::print(stderr, "{}\n", written.error().message);
  return 1;
}

}  // namespace
}  // namespace motley::bench

int main(int count, char** arguments) {
  if (count < 3) {
    fmt::print(stderr, "usage: bench_market DATA OUT.json [KIND]\n");
    return 2;
  }
  return motley::bench::run(arguments[1], arguments[2], count > 3 ? arguments[3] : "");
}

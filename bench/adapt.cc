// What policies that adapt a running training find, and how soon, on simulated clusters. Usage:
// bench_adapt DATA OUT.json [KIND...]; all kinds unless some are named. A row an instance.
//   split   steps to within 2 % of the best split for good, from nothing
//   change  the same after one device slows to half
//   jabas   JABAS's released profile: the learned split's step over the best free one
// "made-split" and "made-change" are the same over the clusters that the policy was made on, and
// only run by name.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/adapt_jabas.h"
#include "bench/adapt_split.h"
#include "motley/base/file.h"
#include "motley/base/json.h"

namespace motley {
namespace {

using Runner = std::function<Result<void>(const std::string& data, bool is_full, Json& rows)>;

int main_of(const std::string& data, const std::string& out,
            const std::vector<std::string>& kinds) {
  const auto split = [](const char* kind) -> Runner {
    return [kind](const std::string& from, bool is_full, Json& rows) {
      return bench::run_split(from, kind, is_full, rows);
    };
  };
  const auto made = [](const char* kind) -> Runner {
    return [kind](const std::string& from, bool is_full, Json& rows) {
      return bench::run_split_made(from, kind, is_full, rows);
    };
  };
  const std::pair<std::string, Runner> runners[] = {
      {"split", split("split")},
      {"change", split("change")},
      {"jabas",
       [](const std::string& from, bool, Json& rows) { return bench::run_jabas(from, rows); }},
      {"made-split", made("split")},
      {"made-change", made("change")}};
  const char* full = std::getenv("MOTLEY_FULL");
  Json rows = Json::array();
  for (const auto& [kind, run] : runners) {
    const bool is_named = std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
    if (!is_named && (!kinds.empty() || kind.starts_with("made"))) continue;
    if (const auto done = run(data, full != nullptr && full[0] == '1', rows); !done) {
      fmt::print(stderr, "{}: {}\n", kind, done.error().message);
      return 1;
    }
  }
  return write_file_atomic(out, Json{{"rows", rows}}.dump(1)) ? 0 : 1;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: bench_adapt DATA OUT.json [KIND...]\n");
    return 2;
  }
  return motley::main_of(argv[1], argv[2], {argv + 3, argv + argc});
}

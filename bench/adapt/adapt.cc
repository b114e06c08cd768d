// Measures what policies that adapt a running training find, and how soon, on simulated clusters.
// Usage: bench_adapt DATA OUT.json [KIND...]; all kinds unless some are named. A row per instance.
//   split   steps to within 2 % of the best split for good, from nothing
//   change  the same after one device slows to half
//   ranks, ranks-slow   the same of scripts' ranks under quotas, to within 5 % (ranks.h)
//   jabas   JABAS's released profile: the learned split's step over the best free one
//   noise, batch, replay, set   noise scale, best batches, trainings replayed (batch.h)
// "made-split" and "made-change": the same over the policy's development clusters, only by name.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/adapt/batch.h"
#include "bench/adapt/jabas.h"
#include "bench/adapt/ranks.h"
#include "bench/adapt/split.h"
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
  const auto drawn = [](void (*add)(Json&)) -> Runner {
    return [add](const std::string&, bool, Json& rows) -> Result<void> {
      add(rows);
      return {};
    };
  };
  const auto replayed = [](const char* folder,
                           Result<void> (*add)(const std::string&, int, Json&)) -> Runner {
    return [folder, add](const std::string& from, bool is_full, Json& rows) -> Result<void> {
      if (std::filesystem::exists(from + "/" + folder)) return add(from, is_full ? 5 : 1, rows);
      fmt::print("\n{}/{} is not here; MOTLEY_DATA says where the measurements are\n", from,
                 folder);
      return {};
    };
  };
  const std::pair<std::string, Runner> runners[] = {
      {"split", split("split")},
      {"change", split("change")},
      {"ranks", drawn([](Json& rows) { bench::add_ranks_rows(bench::RanksKind::kStart, rows); })},
      {"ranks-slow",
       drawn([](Json& rows) { bench::add_ranks_rows(bench::RanksKind::kSlow, rows); })},
      {"jabas",
       [](const std::string& from, bool, Json& rows) { return bench::run_jabas(from, rows); }},
      {"noise", drawn(bench::add_noise_rows)},
      {"batch", drawn(bench::add_batch_rows)},
      {"replay", replayed("pollux", bench::add_replay_rows)},
      {"set", replayed("jabas", bench::add_set_rows)},
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

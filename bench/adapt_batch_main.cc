// Batches that follow the noise scale: estimators, the best batch, and trainings replayed under
// several policies. Usage: bench_adapt_batch DATA OUT.json [KIND]; DATA holds pollux and jabas;
// KIND is noise, batch, replay or set. MOTLEY_FULL=1: five seeds instead of one.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "bench/adapt_batch.h"
#include "motley/base/file.h"

namespace motley {
namespace {

int main_of(const std::string& data, const std::string& out, const std::string& kind) {
  const char* full = std::getenv("MOTLEY_FULL");
  const int seeds = full != nullptr && std::string(full) == "1" ? 5 : 1;
  Json rows = Json::array();
  const auto is_asked = [&](const char* name) { return kind.empty() || kind == name; };
  if (is_asked("noise")) bench::add_noise_rows(rows);
  if (is_asked("batch")) bench::add_batch_rows(rows);
  for (const auto& [name, folder, add] : {std::tuple{"replay", "pollux", &bench::add_replay_rows},
                                          std::tuple{"set", "jabas", &bench::add_set_rows}}) {
    if (!is_asked(name)) continue;
    if (!std::filesystem::exists(data + "/" + folder)) {
      fmt::print("\n{}: {}/{} is not here; MOTLEY_DATA says where the measurements are\n", name,
                 data, folder);
      continue;
    }
    if (const auto done = add(data, seeds, rows); !done) {
      fmt::print(stderr, "{}\n", done.error().message);
      return 1;
    }
  }
  return write_file_atomic(out, Json{{"rows", rows}}.dump(1)) ? 0 : 1;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: bench_adapt_batch DATA OUT.json [KIND]\n");
    return 2;
  }
  return motley::main_of(argv[1], argv[2], argc > 3 ? argv[3] : "");
}

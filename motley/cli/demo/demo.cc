#include "motley/cli/demo/demo.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/text.h"

namespace motley::cli {
namespace {

/// Three unequal devices, emulated on this machine's CPU.
constexpr const char* kCluster = R"(schema = "motley.cluster/1"
name = "demo"

[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
  speed = 0.8

[[node]]
name = "b"
  [[node.device]]
  kind = "cpu"
  speed = 0.4

[[node]]
name = "c"
  [[node.device]]
  kind = "cpu"
  speed = 0.2
  memory = "96MiB"
)";

std::string print_checks(const std::vector<DemoCheck>& checks) {
  std::string text;
  for (const DemoCheck& check : checks) {
    const char* const wanted = check.wanted == DemoCheck::Wanted::kAtMost ? "at most" : "at least";
    const char* const word = !check.noise.empty() ? "busy" : check.pass() ? "pass" : "FAIL";
    text += fmt::format("  {}  {:<58} {:>9.3g}  {} {:.2g}\n", word, check.name, check.value, wanted,
                        check.limit);
    if (!check.noise.empty()) text += fmt::format("        {}\n", check.noise);
  }
  return text;
}

Json checks_to_json(const std::vector<DemoCheck>& checks) {
  Json list = Json::array();
  for (const DemoCheck& check : checks)
    list.push_back({{"name", check.name},
                    {"value", check.value},
                    {"limit", check.limit},
                    {"pass", check.pass()},
                    {"noise", check.noise.empty() ? Json() : Json(check.noise)}});
  return list;
}

bool all_pass(const std::vector<DemoCheck>& checks) {
  return std::all_of(checks.begin(), checks.end(),
                     [](const DemoCheck& check) { return check.pass(); });
}

std::string print_verdict(const std::vector<DemoCheck>& checks) {
  if (!all_pass(checks)) return "CHECKS FAILED";
  const bool is_noisy = std::any_of(checks.begin(), checks.end(),
                                    [](const DemoCheck& check) { return !check.noise.empty(); });
  return is_noisy ? "All that could be checked passed" : "All checks passed";
}

std::string typed(const std::string& path) {
  std::error_code code;
  const std::string relative = std::filesystem::proximate(path, code).string();
  return code || relative.starts_with("..") ? path : relative;
}

/// Returns hints to see the result and to continue. Parts that are not installed get their paths.
std::string print_what_next(const DemoSetting& setting, const std::string& last_model,
                            const Context& context) {
  const DemoPlaces& places = setting.places;
  const bool is_installed = places.package.empty();
  const std::string python =
      is_installed ? "python"
                   : fmt::format("PYTHONPATH={} {}", typed(places.package), typed(places.python));
  return fmt::format(
      "See what happened: {} report {}/{}\n"
      "  For your own model: {} -m motley.export FILE.py:FUNCTION -o MODEL.motley\n",
      is_installed ? "motley" : typed(context.program), setting.directory, last_model, python);
}

}  // namespace

Result<int> demonstrate(const std::vector<DemoModel>& models, const DemoSetting& setting,
                        const Context& context) {
  const std::string& directory = setting.directory;
  context.note(
      "Three emulated devices on this machine's CPU: a:0 gets 0.8 of a core, b:0 0.4, c:0 "
      "0.2 and 96 MiB.\nTwo models are trained with an equal split and with the split Motley "
      "finds, in turns, each going on from where it was. About two minutes.");
  const Seconds start = context.clock->steady();
  std::error_code code;
  std::filesystem::create_directories(directory, code);
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(directory + "/cluster.toml", kCluster));
  std::vector<DemoCheck> checks;
  Json timings = Json::array();
  double speedup = INFINITY, error = 0;
  for (const DemoModel& model : models) {
    DemoTraining training(model, setting, context);
    MOTLEY_RETURN_IF_ERROR(training.run());
    for (DemoCheck& check : training.checks()) checks.push_back(std::move(check));
    timings.push_back(training.timings_to_json());
    speedup = std::min(speedup, training.speedup());
    error = std::max(error, training.prediction_error());
  }
  const Seconds elapsed = context.clock->steady() - start;
  context.result(
      fmt::format("\n{}\n  {} in {}. {}", print_checks(checks), print_verdict(checks),
                  format_seconds(elapsed), print_what_next(setting, models.back().name, context)),
      {{"checks", checks_to_json(checks)},
       {"timings", timings},
       {"speedup_vs_equal_split", speedup},
       {"prediction_error", error},
       {"elapsed_s", elapsed.value},
       {"run_dir", directory}});
  return all_pass(checks) ? kDone : kCheckFailed;
}

}  // namespace motley::cli

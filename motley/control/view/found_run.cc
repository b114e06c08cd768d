#include "motley/control/view/found_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "motley/base/file.h"
#include "motley/control/claim.h"
#include "motley/run/hosts/here.h"
#include "motley/run/launch/diagnosis.h"

namespace motley::control {
namespace {

constexpr const char* kScriptSchema = "motley.script/1";

/// Reads a JSON object; none if the file is absent, or damaged, which is noted.
std::optional<Json> find_object(const std::string& path, std::vector<std::string>& notes) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  auto text = read_file(path);
  auto json = text ? parse_json(*text, path) : tl::make_unexpected(text.error());
  if (json && json->is_object()) return std::move(*json);
  notes.push_back(json ? path + ": is no JSON object" : json.error().message);
  return std::nullopt;
}

std::string text_member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

void find_ranks(bool is_led, FoundRun& run) {
  run::Diagnosis diagnosis(run.job);
  for (int rank = 0; rank < std::ssize(run.job.devices); ++rank) {
    const run::WorkerDevice& device = run.job.devices[static_cast<std::size_t>(rank)];
    RankPlace place{.rank = rank, .device = device.name, .step = diagnosis.step(rank)};
    // Only the coordinator knows a process of another host.
    place.is_running = device.host.empty() ? diagnosis.is_running(rank) : place.step && is_led;
    place.where = diagnosis.where(rank);
    run.ranks.push_back(std::move(place));
  }
}

RunState find_state(const std::optional<Json>& start, const std::optional<Json>& failure,
                    bool is_led, const FoundRun& run) {
  if (run.summary) {
    const auto stopped = run.summary->find("stopped");
    const bool is_stopped = stopped != run.summary->end() && *stopped == true;
    return is_stopped ? RunState::kStopped : RunState::kFinished;
  }
  if (failure) return RunState::kFailed;
  const auto runs = [](const RankPlace& rank) { return rank.is_running; };
  if (is_led || std::any_of(run.ranks.begin(), run.ranks.end(), runs)) return RunState::kRunning;
  const auto started = [](const RankPlace& rank) { return rank.step.has_value(); };
  const bool has_begun = start || std::any_of(run.ranks.begin(), run.ranks.end(), started);
  return has_begun ? RunState::kEnded : RunState::kPrepared;
}

std::string how_it_ended(const FoundRun& run, const std::optional<Json>& failure, bool is_scripts) {
  if (run.state == RunState::kFailed) return text_member(*failure, "message");
  if (run.state == RunState::kStopped && run.is_script) return "told to stop";
  if (run.state == RunState::kStopped) return "told to stop; run the same command again to go on";
  if (run.state != RunState::kEnded) return "";
  return is_scripts ? "no process of it is left; whether its script came to its end is not written"
                    : "its processes are gone and left no word: they were killed, or the machine "
                      "went down";
}

/// Reads the job of a script's own loop: devices without a program.
Result<run::Job> read_script(const RunDirectory& directory) {
  MOTLEY_ASSIGN(const std::string text, read_file(directory.script()));
  MOTLEY_ASSIGN(const Json json, parse_json(text, directory.script()));
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, directory.script()));
  MOTLEY_ASSIGN(const std::string schema, object.string("schema"));
  MOTLEY_ASSIGN(const Json* devices, object.member("devices"));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  run::Job job;
  for (const Json& name : *devices)
    if (name.is_string()) job.devices.push_back({.name = name.get<std::string>(), .kind = ""});
  if (schema != kScriptSchema || job.devices.empty())
    return usage_error("cli.script",
                       fmt::format("{}: found schema '{}' and {} devices, wanted {}",
                                   directory.script(), schema, job.devices.size(), kScriptSchema));
  return job;
}

void find_traces(FoundRun& run) {
  if (run.has_summary() && run.job.trace_steps > 0) {
    auto measured = read_trace_by_one_clock(run.directory, run.job);
    if (measured)
      run.measured = std::move(*measured);
    else
      run.notes.push_back(measured.error().message);
  }
  if (!std::filesystem::exists(run.directory.predicted())) return;
  auto text = read_file(run.directory.predicted());
  auto predicted = text ? trace::parse_trace(*text, run.directory.predicted())
                        : tl::make_unexpected(text.error());
  if (predicted)
    run.predicted = std::move(*predicted);
  else
    run.notes.push_back(predicted.error().message);
}

void find_checkpoint(FoundRun& run) {
  std::error_code code;
  const auto target = std::filesystem::read_symlink(run.directory.latest_checkpoint(), code);
  if (!code) run.checkpoint = run.directory.path + "/checkpoint/" + target.filename().string();
}

}  // namespace

std::string_view state_name(RunState state) {
  switch (state) {
    case RunState::kPrepared:
      return "prepared";
    case RunState::kRunning:
      return "running";
    case RunState::kFinished:
      return "finished";
    case RunState::kStopped:
      return "stopped";
    case RunState::kFailed:
      return "failed";
    case RunState::kEnded:
      break;
  }
  return "ended";
}

Result<FoundRun> find_run(const std::string& path) {
  FoundRun run{.directory = {path}};
  run.is_script = std::filesystem::exists(run.directory.script()) &&
                  !std::filesystem::exists(run.directory.job());
  MOTLEY_ASSIGN(run.job, run.is_script ? read_script(run.directory) : read_job(run.directory));
  run.job.run_dir = path;  // it may have been moved
  if (!std::filesystem::exists(run.job.program_path))
    run.job.program_path = run.directory.program();
  const std::optional<Json> start = find_object(run.directory.start(), run.notes);
  const std::optional<Json> failure = find_object(run.directory.failure(), run.notes);
  run.summary = find_object(run.directory.summary(), run.notes);
  if (start && start->contains("arguments") && start->at("arguments").is_array())
    for (const Json& word : start->at("arguments"))
      if (word.is_string()) run.arguments.push_back(word.get<std::string>());
  const bool is_led = find_holder(run.directory).has_value();
  if (!run.is_script) find_ranks(is_led, run);
  run.state = find_state(start, failure, is_led, run);
  run.how = how_it_ended(run, failure, !start);
  MOTLEY_ASSIGN(run.log, read_log(run.directory));
  find_checkpoint(run);
  if (!run.is_script) find_traces(run);
  return run;
}

Result<void> write_start(const RunDirectory& directory, const std::vector<std::string>& arguments) {
  return write_file_atomic(
      directory.start(),
      Json{{"arguments", arguments}, {"pid", ::getpid()}, {"host", run::own_host_name()}}.dump(
          2, ' ', false, Json::error_handler_t::replace));
}

Result<void> write_failure(const RunDirectory& directory, const Error& error) {
  return write_file_atomic(directory.failure(),
                           Json{{"code", error.code}, {"message", error.message}}.dump(
                               2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace motley::control

#include "motley/run/feed/loader.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/run/launch/processors.h"
#include "motley/run/launch/programs.h"

namespace motley::run {
namespace {

constexpr std::size_t kMostAsked = 1024;  // requests that a pipe holds without blocking
constexpr int kPoll = 50;                 // ms
constexpr double kForgetting = 0.05;      // weight of the newest sample's time in the mean

std::string source_name(const data::DataSource& source) {
  return source.function.empty() ? source.path : source.path + ":" + source.function;
}

std::vector<std::string> loader_words(const LoaderQuestion& question, const char* verb, Json json) {
  return {question.source.loading.python, "-m", "motley.loader", verb, json.dump()};
}

/// Returns what the loader printed; its stderr is the error.
Result<std::string> ask_loader(const std::vector<std::string>& words, Seconds timeout) {
  auto answer = run_program(words[0], {words.begin() + 1, words.end()}, timeout.value);
  if (answer || (answer.error().code != "run.worker-lost" && answer.error().code != "run.spawn"))
    return answer;
  // It printed nothing itself: it is not Python, or lacks motley.
  Error error = std::move(answer).error();
  error.message +=
      "; --python, or MOTLEY_PYTHON, names an interpreter with PyTorch, and PYTHONPATH "
      "has Motley's python folder";
  return tl::make_unexpected(std::move(error));
}

}  // namespace

Json loader_question_to_json(const LoaderQuestion& question) {
  Json inputs = Json::array();
  for (const data::InputSpec& input : question.inputs)
    inputs.push_back(Json{{"name", input.name},
                          {"dtype", std::string(dtype_name(input.dtype))},
                          {"shape", input.sample_shape}});
  return Json{{"source", source_name(question.source)},
              {"inputs", std::move(inputs)},
              {"pad", question.source.loading.pads},
              {"seed", question.source.loading.seed}};
}

Result<std::int64_t> count_loaded_samples(const LoaderQuestion& question, Seconds timeout) {
  const auto words = loader_words(question, "describe", loader_question_to_json(question));
  MOTLEY_ASSIGN(const std::string text, ask_loader(words, timeout));
  MOTLEY_ASSIGN(const Json answer, parse_json(text, "motley.loader"));
  const auto samples = answer.find("samples");
  if (samples == answer.end()) return runtime_error("run.feed", "motley.loader: no answer");
  return samples->is_number_integer() ? samples->get<std::int64_t>() : -1;
}

Result<void> write_loaded_samples(const LoaderQuestion& question,
                                  const std::vector<std::pair<std::int64_t, std::int64_t>>& samples,
                                  const std::string& path, Seconds timeout) {
  Json json = loader_question_to_json(question);
  json["samples"] = samples;
  json["output"] = path;
  const std::string asked = path + ".json";  // too long for a command line
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(asked, json.dump()));
  MOTLEY_RETURN_IF_ERROR(ask_loader(
      {question.source.loading.python, "-m", "motley.loader", "write", "@" + asked}, timeout));
  return {};
}

Loader::Loader(Options options, SampleRing& ring, WantedSamples wanted)
    : options_(std::move(options)), ring_(ring), wanted_(std::move(wanted)) {
  thread_ = std::thread([this] { work(); });
}

Loader::~Loader() {
  ends_ = true;
  ring_.wake_leader();
  thread_.join();
}

/// Returns the requested number, or the cores that the ranks of this machine leave free.
int Loader::count_processes() const {
  const int asked = options_.question.source.loading.processes;
  const int cores = static_cast<int>(usable_processors().size());
  return asked > 0 ? asked : std::max(1, cores - options_.ranks);
}

void Loader::work() {
  use_all_processors();  // an emulated device pins its threads to one
  processes_ = count_processes();
  if (const auto started = start(); !started) {
    ring_.fail(started.error().message);
    return;
  }
  while (!ends_ && !has_failed_) {
    ask();
    wait();
    check_time();
  }
  ::kill(child_.pid, SIGKILL);  // its processes die with it
  wait_for_exit(child_.pid);
}

/// Must run on this thread: Python dies with the thread that started it.
Result<void> Loader::start() {
  Json json = loader_question_to_json(options_.question);
  json["memory"] = ring_.memory_path();
  json["offset"] = ring_.data_offset();
  json["processes"] = processes();
  json["parent"] = ::getpid();
  SpawnOptions spawning;
  spawning.arguments = loader_words(options_.question, "serve", std::move(json));
  spawning.takes_input = true;
  sigemptyset(&spawning.mask);
  MOTLEY_ASSIGN(child_, spawn(spawning));
  since_ = Clock::now();
  return {};
}

std::string Loader::name() const { return source_name(options_.question.source); }

void Loader::fail(const std::string& message) {
  has_failed_ = true;
  ring_.fail(message);
}

void Loader::ask() {
  while (is_open_ && asked_.size() < kMostAsked) {
    if (!next_) next_ = wanted_(next_item_);
    if (!ring_.claim(next_item_, next_->readers)) return;
    const std::int64_t slot = next_item_ % ring_.slots();
    const std::array<std::int64_t, 3> request = {slot, next_->epoch, next_->number};
    if (::write(child_.input.number(), request.data(), sizeof request) !=
        static_cast<ssize_t>(sizeof request))
      return fail(name() + ": the loading process is gone");
    if (asked_.empty()) since_ = Clock::now();
    asked_[slot] = {next_item_, *next_, Clock::now(), 0};
    ++next_item_;
    next_.reset();
  }
}

void Loader::wait() {
  std::array<pollfd, 2> waits = {pollfd{child_.output.number(), POLLIN, 0},
                                 pollfd{ring_.released_descriptor(), POLLIN, 0}};
  if (::poll(waits.data(), waits.size(), kPoll) <= 0) return;
  if (waits[1].revents != 0) ring_.take_releases();
  if (waits[0].revents == 0) return;
  read_lines(child_, [&](const std::string& line) { take_line(line); });
  if (!child_.output.is_open() && !has_failed_)
    fail(fmt::format("{}: the loading process ended", name()));
}

/// Handles a line of python/motley/loader.py.
void Loader::take_line(const std::string& line) {
  since_ = Clock::now();
  const std::size_t first = line.find(' '), second = line.find(' ', first + 1);
  if (has_failed_ || first == std::string::npos) return;
  const std::string word = line.substr(0, first);
  const std::int64_t number = find_integer(line.substr(first + 1, second - first - 1)).value_or(-1);
  const std::string rest = second == std::string::npos ? "" : line.substr(second + 1);
  if (word == "ready") {
    is_open_ = true;
  } else if (word == "failed") {
    fail(rest);
  } else if (word == "lost") {
    std::string what = name();
    for (const auto& [slot, asked] : asked_)
      if (asked.pid == number) what += fmt::format(": sample {}", asked.sample.number);
    fail(fmt::format("{}: loading process {} was killed by signal {}", what, number, rest));
  } else if (const auto asked = asked_.find(number); asked != asked_.end()) {
    if (word == "begin") {
      asked->second.pid = find_integer(rest).value_or(0);
      asked->second.since = since_;
      return;
    }
    const double seconds = find_float(rest).value_or(0), mean = sample_seconds();
    sample_seconds_ = mean == 0 ? seconds : mean + kForgetting * (seconds - mean);
    ring_.publish(asked->second.item);
    asked_.erase(asked);
  }
}

void Loader::check_time() {
  const auto now = Clock::now();
  const auto seconds = [&](Clock::time_point since) {
    return std::chrono::duration<double>(now - since).count();
  };
  if (!is_open_ && seconds(since_) > options_.start_timeout.value)
    return fail(fmt::format("{}: not open after {:.0f} s", name(), options_.start_timeout.value));
  for (const auto& [slot, asked] : asked_)
    if (asked.pid != 0 && seconds(asked.since) > options_.timeout.value)
      return fail(
          fmt::format("{}: sample {} is not loaded after {:.0f} s (process {}); --timeout "
                      "gives it longer",
                      name(), asked.sample.number, options_.timeout.value, asked.pid));
}

}  // namespace motley::run

#include "motley/run/hosts/standby.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "motley/base/file.h"
#include "motley/run/hosts/frame.h"
#include "motley/run/hosts/here.h"

namespace motley::run {
namespace {

constexpr int kLookMs = 50;
constexpr double kTurn = 4;        // seconds that each host of the view has before the next one
constexpr double kMostAlone = 60;  // seconds
constexpr double kWord = 1;        // seconds for a caller's first message

std::optional<Frame> first_frame(int socket) {
  FrameReader reader;
  const auto begin = Clock::now();
  while (seconds_since(begin) < kWord) {
    if (auto frame = reader.next()) return frame;
    pollfd wait{socket, POLLIN, 0};
    if (::poll(&wait, 1, kLookMs) > 0 && !reader.read_some(socket)) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

Result<std::unique_ptr<Standby>> Standby::start(Options options) {
  constexpr int kBacklog = 16;
  MOTLEY_ASSIGN(Listening listening, listen_here(0, kBacklog, Callers::kAll));
  return std::unique_ptr<Standby>(
      new Standby(std::move(options), std::move(listening.socket), listening.port));
}

Result<void> Standby::remember(std::string text) {
  MOTLEY_ASSIGN(const Json memory, parse_json(text, "memory"));
  view_ = memory.at("view").get<std::vector<std::string>>();
  coordinator_ = memory.at("lead").get<std::string>();
  arguments_ = memory.at("arguments").get<std::vector<std::string>>();
  name_ = std::filesystem::path(memory.at("name").get<std::string>()).filename().string();
  text_ = std::move(text);
  return {};
}

void Standby::refuse() const {
  const Descriptor caller(::accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!caller.is_open()) return;
  FrameWriter words;
  words.add({{"is", "failed"},
             {"code", "host.led"},
             {"message", fmt::format("{}: its coordinator lives", options_.host)}});
  (void)words.write_some(caller.number());
}

/// Accepts a caller that knows the word.
std::optional<Descriptor> Standby::let_in() const {
  Descriptor caller(::accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!caller.is_open()) return std::nullopt;
  const auto frame = first_frame(caller.number());
  if (!frame || frame->head.value("do", "") != "lead") return std::nullopt;
  if (frame->head.value("word", "") != options_.word) return std::nullopt;
  return caller;
}

/// Returns the seconds alone after which this host starts a coordinator.
double Standby::turn() const {
  const auto own = std::find(view_.begin(), view_.end(), options_.host);
  const auto before = std::count_if(
      view_.begin(), own, [this](const std::string& host) { return host != coordinator_; });
  return static_cast<double>(before) * kTurn;
}

Result<void> Standby::lead_on() {
  const std::string memory = options_.folder + "/memory.json";
  MOTLEY_ASSIGN(Json own, parse_json(text_, "memory"));
  own["own"] = options_.host;
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(memory, own.dump(), Readers::kOwner));
  std::error_code code;
  std::filesystem::create_directories(options_.led, code);
  const std::string words = options_.led + "/" + name_;
  SpawnOptions options;
  options.arguments = {"sh", "-c",           "out=$1; shift; exec \"$@\" >>\"$out\"",
                       "sh", words + ".out", options_.program};
  options.arguments.insert(options.arguments.end(), arguments_.begin(), arguments_.end());
  options.arguments.insert(options.arguments.end(), {"--succeed", memory});
  options.error_path = words + ".log";
  sigemptyset(&options.mask);
  MOTLEY_ASSIGN(Child child, spawn(options));
  return {};
}

Result<Descriptor> Standby::await_coordinator() {
  const auto begin = Clock::now();
  // After coordinators that failed, waits longer, so that other hosts get their turn.
  double turn = this->turn() + kTurn * kTurn * started_;
  while (seconds_since(begin) < kMostAlone) {
    alone_ = seconds_since(begin);
    if (alone_ >= turn) {
      MOTLEY_RETURN_IF_ERROR(lead_on());
      ++started_;
      turn = 2 * kMostAlone;  // it is there now, or never will be
    }
    pollfd wait{socket_.number(), POLLIN, 0};
    if (::poll(&wait, 1, kLookMs) <= 0) continue;
    if (auto caller = let_in()) return std::move(*caller);
  }
  return runtime_error(
      "agent.alone",
      fmt::format("the coordinator is gone, and no other came within {:.0f} s", kMostAlone));
}

}  // namespace motley::run

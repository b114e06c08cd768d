#include "motley/run/hosts/remote_crew.h"

#include <signal.h>

#include <fstream>
#include <utility>

namespace motley::run {

RemoteCrew::~RemoteCrew() { signal(SIGKILL); }

Result<void> RemoteCrew::start(const Hand& hand) {
  MOTLEY_RETURN_IF_ERROR(
      link_.send({{"do", "start"}, {"id", hand.id}, {"arguments", hand.arguments}}));
  logs_[hand.id] = hand.log;
  return {};
}

void RemoteCrew::add_waits(std::vector<pollfd>& waits) const {
  if (link_.descriptor() >= 0) waits.push_back({link_.descriptor(), POLLIN, 0});
}

void RemoteCrew::take(const Frame& frame, std::vector<Heard>& heard) {
  const std::string is = frame.head.value("is", "");
  const int id = frame.head.value("id", -1);
  const auto member = logs_.find(id);
  if (is == "failed")  // a start: nothing else that is asked of a crew fails
    for (const auto& [each, log] : std::exchange(logs_, {}))
      heard.push_back({each, Heard::What::kLost,
                       "host " + link_.host() + ": " + frame.head.value("message", ""), 0});
  if (member == logs_.end()) return;
  if (is == "line") heard.push_back({id, Heard::What::kLine, frame.head.value("text", ""), 0});
  if (is == "log" && !member->second.empty())
    std::ofstream(member->second, std::ios::binary | std::ios::app) << frame.bytes;
  if (is == "status" && !run_dir_.empty()) {
    auto status = statuses_.find(id);
    if (status == statuses_.end()) {
      auto made = StatusFile::create(run_dir_, id);
      if (!made) return;
      status = statuses_.emplace(id, std::move(*made)).first;
    }
    status->second.set(frame.head.value("record", std::vector<std::int64_t>()));
  }
  if (is != "exit") return;
  logs_.erase(member);
  heard.push_back({id, Heard::What::kExit, "", frame.head.value("status", 0)});
}

void RemoteCrew::listen(std::vector<Heard>& heard) {
  if (logs_.empty()) return;
  const auto frames = link_.take();
  if (frames) {
    for (const Frame& frame : *frames) take(frame, heard);
    return;
  }
  for (const auto& [id, log] : std::exchange(logs_, {}))
    heard.push_back({id, Heard::What::kLost, frames.error().message, 0});
}

void RemoteCrew::signal(int signal) {
  if (!logs_.empty()) (void)link_.send({{"do", "signal"}, {"signal", signal}});
}

}  // namespace motley::run

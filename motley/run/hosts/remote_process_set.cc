#include "motley/run/hosts/remote_process_set.h"

#include <signal.h>

#include <fstream>
#include <utility>

namespace motley::run {

RemoteProcessSet::~RemoteProcessSet() { signal(SIGKILL); }

Result<void> RemoteProcessSet::start(const Hand& hand) {
  const int number = link_.next_process();
  MOTLEY_RETURN_IF_ERROR(link_.post({{"do", "start"},
                                     {"id", number},
                                     {"rank", hand.id},
                                     {"arguments", hand.arguments},
                                     {"takes_lines", hand.takes_lines}}));
  hands_[number] = hand;
  return {};
}

void RemoteProcessSet::adopt(const Hand& hand, int number) {
  link_.know_process(number);
  hands_[number] = hand;
}

void RemoteProcessSet::add_waits(std::vector<pollfd>& waits) const {
  if (hands_.empty()) return;  // nothing is listened to
  if (link_.descriptor() >= 0) waits.push_back({link_.descriptor(), POLLIN, 0});
  if (link_.has_more()) waits.push_back({link_.input_descriptor(), POLLOUT, 0});
}

void RemoteProcessSet::lose_all(const std::string& why, std::vector<Heard>& heard) {
  for (const auto& [number, hand] : std::exchange(hands_, {}))
    heard.push_back({hand.id, Heard::What::kLost, why, 0});
}

void RemoteProcessSet::take_status(int rank, const Frame& frame) {
  if (run_dir_.empty()) return;
  auto status = statuses_.find(rank);
  if (status == statuses_.end()) {
    auto made = StatusFile::create(run_dir_, rank);
    if (!made) return;
    status = statuses_.emplace(rank, std::move(*made)).first;
  }
  status->second.set(frame.head.value("record", std::vector<std::int64_t>()));
}

void RemoteProcessSet::take(const Frame& frame, std::vector<Heard>& heard) {
  const std::string is = frame.head.value("is", "");
  if (is == "failed")  // a start: no other request of a process set fails
    lose_all("host " + link_.host() + ": " + frame.head.value("message", ""), heard);
  const auto hand = hands_.find(frame.head.value("id", -1));
  if (hand == hands_.end()) return;  // of an earlier process set
  const int id = hand->second.id;
  const std::string& log = hand->second.log;
  if (is == "line") heard.push_back({id, Heard::What::kLine, frame.head.value("text", ""), 0});
  if (is == "log" && !log.empty())
    std::ofstream(log, std::ios::binary | std::ios::app) << frame.bytes;
  if (is == "status") take_status(id, frame);
  if (is != "exit") return;
  heard.push_back({id, Heard::What::kExit, "", frame.head.value("status", 0)});
  hands_.erase(hand);
}

void RemoteProcessSet::listen(std::vector<Heard>& heard) {
  if (hands_.empty()) return;
  const auto frames = link_.take();
  if (!frames) return lose_all(frames.error().message, heard);
  for (const Frame& frame : *frames) take(frame, heard);
}

Result<void> RemoteProcessSet::tell(int id, const std::string& line) {
  for (const auto& [number, hand] : hands_)
    if (hand.id == id) return link_.post({{"do", "tell"}, {"id", number}}, line);
  return {};
}

void RemoteProcessSet::signal_one(int id, int signal) {
  for (const auto& [number, hand] : hands_)
    if (hand.id == id) (void)link_.post({{"do", "signal"}, {"signal", signal}, {"id", number}});
}

void RemoteProcessSet::forget(int id) {
  std::erase_if(hands_, [id](const auto& each) { return each.second.id == id; });
}

void RemoteProcessSet::signal(int signal) {
  if (!hands_.empty()) (void)link_.post({{"do", "signal"}, {"signal", signal}});
}

}  // namespace motley::run

#include "motley/run/launch/agent_takeover.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "motley/base/file.h"
#include "motley/run/hosts/agent.h"
#include "motley/run/hosts/here.h"

namespace motley::run {
namespace {

constexpr double kSettling = 0.3;  // seconds that hosts have to answer before they count as gone
constexpr std::size_t kMostOfLog = std::size_t{1} << 20;  // bytes per message

Views::View first_view(const Job& job, const std::string& coordinator) {
  Views::View view{first_hosts(job), coordinator};
  view.hosts.insert(coordinator);
  return view;
}

Views::View view_of(const Json& memory) {
  return {memory.value("view", std::set<std::string>()), memory.value("lead", "")};
}

using Version = std::pair<std::int64_t, std::int64_t>;
Version version_of(const Json& memory) {
  return {memory.value("epoch", std::int64_t{0}), memory.value("version", std::int64_t{0})};
}

}  // namespace

AgentTakeover::AgentTakeover(Hosts& hosts, const Job& job, std::string host,
                             const TakeoverState* inherited)
    : hosts_(hosts),
      job_(job),
      host_(std::move(host)),
      word_(inherited == nullptr ? random_word() : inherited->memory.value("word", "")),
      views_(host_, inherited == nullptr ? first_view(job, host_) : view_of(inherited->memory)),
      patience_(std::max(job.timeout.value, 3 * kBeatEvery)) {
  if (inherited == nullptr) return;
  epoch_ = inherited->memory.value("epoch", 0) + 1;
  version_ = inherited->memory.value("version", std::int64_t{0});
  std::error_code code;
  const auto size = std::filesystem::file_size(log_path(), code);
  log_sent_ = code ? 0 : static_cast<std::int64_t>(size);  // the agents have it
}

AgentTakeover::~AgentTakeover() {
  for (const std::string& host : reached())
    (void)hosts_.on(host).send({{"do", "outlive"}, {"word", ""}, {"host", ""}, {"patience", 0}});
}

std::string AgentTakeover::log_path() const { return job_.run_dir + "/log.jsonl"; }

std::set<std::string> AgentTakeover::reached() const {
  std::set<std::string> hosts;
  for (const std::string& host : remote_hosts(job_))
    if (!hosts_.agents_on(host).empty()) hosts.insert(host);
  return hosts;
}

std::int64_t AgentTakeover::remembered(const std::string& host) const {
  return hosts_.agents_on(host).empty() ? 0 : hosts_.on(host).remembered();
}

/// Returns the coordinator's host and those that confirmed the last memory.
std::set<std::string> AgentTakeover::answering() const {
  std::set<std::string> hosts = {host_};
  for (const std::string& host : reached())
    if (version_ > 0 && remembered(host) >= version_) hosts.insert(host);
  return hosts;
}

bool AgentTakeover::may_coordinate() { return views_.is_quorum(answering()); }

void AgentTakeover::leave_checkpoint(const std::string& path, const std::string& writer) {
  checkpoint_ = path;
  const bool is_reached = !writer.empty() && !hosts_.agents_on(writer).empty();
  written_by_ = is_reached ? hosts_.on(writer).scratch() : "";
}

/// Returns the host that takes over when this one is gone; "": none can.
std::string AgentTakeover::first_standby() const {
  for (const std::string& host : views_.latest().hosts)
    if (host != host_ && !hosts_.agents_on(host).empty()) return host;
  return "";
}

/// Requests the copies of files that each host is to have.
void AgentTakeover::share_files() {
  const std::string standby = first_standby();
  for (const std::string& host : reached()) {
    Left& left = left_[host];
    if (const std::string& scratch = hosts_.on(host).scratch(); left.scratch != scratch)
      left = {scratch, {}};
    if (!profiles_.empty()) left.files.want("profiles", "store", profiles_);
    if (host == standby && !checkpoint_.empty() && written_by_ != left.scratch)
      left.files.want("checkpoint", std::filesystem::path(checkpoint_).filename(), checkpoint_);
  }
}

void AgentTakeover::send_files() {
  for (auto& [host, left] : left_) {
    if (left.files.is_idle() || hosts_.agents_on(host).empty()) continue;
    HostLink& link = hosts_.on(host);
    if (link.scratch() == left.scratch) left.files.go_on(link);
  }
}

void AgentTakeover::leave(Json what) {
  profiles_ = what.value("profiles", "");
  what_ = std::move(what);
  send(views_.latest().hosts);
}

void AgentTakeover::send(std::set<std::string> view) {
  sent_at_ = Clock::now();
  if (view != views_.latest().hosts && !views_.propose(version_ + 1, view)) return;
  ++version_;
  Json what = what_;
  what["view"] = std::move(view);
  what["lead"] = host_;
  what["word"] = word_;
  what["epoch"] = epoch_;
  what["version"] = version_;
  what["patience"] = patience_;
  what["ways"] = Json::object();
  for (const std::string& host : reached())
    what["ways"][host] = {{"address", hosts_.way_to(host).host},
                          {"port", hosts_.on(host).standby_port()}};
  const std::string text = what.dump();
  for (const std::string& host : reached()) {
    HostLink& link = hosts_.on(host);
    (void)link.make_standby(host, word_, patience_);
    (void)link.post({{"do", "remember"}, {"version", version_}}, text);
  }
}

void AgentTakeover::look() {
  std::size_t ports = 0;
  for (const std::string& host : reached()) {
    (void)hosts_.on(host).listen();
    ports += hosts_.on(host).standby_port() > 0 ? 1 : 0;
  }
  send_log();
  if (version_ == 0) return;
  share_files();
  views_.settle([this](const std::string& host) { return remembered(host); });
  const std::set<std::string> now = answering();
  const bool is_time = seconds_since(sent_at_) > kSettling;
  // Hosts that answer join the view, and all learn each other's ports.
  if (is_time && (now != views_.latest().hosts || ports != std::exchange(known_ports_, ports)))
    send(now);
}

void AgentTakeover::send_log() {
  std::error_code code;
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(log_path(), code));
  if (code || size <= log_sent_) return;
  std::ifstream stream(log_path(), std::ios::binary);
  stream.seekg(log_sent_);
  std::string text(std::min(kMostOfLog, static_cast<std::size_t>(size - log_sent_)), '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, stream.gcount())));
  log_sent_ += static_cast<std::int64_t>(text.size());
  for (const std::string& host : reached())
    (void)hosts_.on(host).post({{"do", "append"}, {"path", "log.jsonl"}}, text);
}

namespace {

struct Way {
  std::string host, address;
  int port = 0;
};

std::vector<Way> ways_of(const Json& memory) {
  std::vector<Way> ways;
  const Json none = Json::object();
  const auto all = memory.find("ways");
  for (const auto& [host, way] : (all == memory.end() ? none : *all).items())
    ways.push_back({host, way.value("address", ""), way.value("port", 0)});
  return ways;
}

using Reached = std::map<std::string, Result<Hosts::Reached>>;

Reached ask_all(const Hosts& hosts, const std::vector<Way>& ways, const std::string& word) {
  std::map<std::string, std::future<Result<Hosts::Reached>>> asked;
  for (const Way& way : ways)
    asked[way.host] = std::async(std::launch::async, [&hosts, way, word] {
      return hosts.take_over(way.host, way.address, way.port, word);
    });
  Reached reached;
  for (auto& [host, answer] : asked) reached.emplace(host, answer.get());
  return reached;
}

}  // namespace

Result<TakeoverState> AgentTakeover::take_over(Hosts& hosts, const std::string& memory_file) {
  try {
    return take_all(hosts, memory_file);
  } catch (const Json::exception& fault) {
    return runtime_error("succession.none", memory_file + ": " + fault.what());
  }
}

/// Throws if the memory is malformed.
Result<TakeoverState> AgentTakeover::take_all(Hosts& hosts, const std::string& memory_file) {
  constexpr std::chrono::milliseconds kAgain{100};
  MOTLEY_ASSIGN(const std::string text, read_file(memory_file));
  MOTLEY_ASSIGN(const Json own, parse_json(text, memory_file));
  TakeoverState standby{.memory = own, .host = own.value("own", "")};
  const std::string word = own.value("word", "");
  const double patience = own.value("patience", 0.0) + kBeatEvery;
  const auto begin = Clock::now();
  std::string why = "nobody was asked";
  while (true) {
    std::vector<Way> missing;
    for (const Way& way : ways_of(standby.memory))
      if (!standby.hosts.contains(way.host)) missing.push_back(way);
    for (auto& [host, reached] : ask_all(hosts, missing, word)) {
      if (!reached) {
        why = reached.error().message;
        continue;
      }
      if (const auto memory = parse_json(reached->hello.value("memory", ""), host);
          memory && version_of(*memory) > version_of(standby.memory))
        standby.memory = *memory;
      if (host == standby.host) {
        standby.scratch = reached->hello.value("scratch", "");
        standby.alone = Seconds(reached->hello.value("alone", 0.0));
      }
      standby.checkpoints[host] = reached->hello.value("checkpoints", std::vector<std::string>());
      for (const Json& pair : reached->hello.value("processes", Json::array()))
        standby.processes[pair.at(1).get<int>()] = pair.at(0).get<int>();
      for (const std::string line : reached->hello.value("lines", Json::array()))
        if (auto event = parse_event(line); event && event->event == "step")
          standby.steps.push_back(std::move(*event));
      hosts.take_in(host, std::move(*reached));
      standby.hosts.insert(host);
    }
    // Waits for all hosts of the view, or a quorum and a moment for agents that are only now alone.
    std::set<std::string> others = view_of(standby.memory).hosts;
    others.erase(standby.memory.value("lead", ""));
    const bool has_all =
        std::includes(standby.hosts.begin(), standby.hosts.end(), others.begin(), others.end());
    const bool may_coordinate =
        Views(standby.host, view_of(standby.memory)).is_quorum(standby.hosts);
    const double waited = seconds_since(begin);
    if (has_all || (may_coordinate && waited > kSettling) || waited > patience) break;
    std::this_thread::sleep_for(kAgain);
  }
  if (!standby.hosts.contains(standby.host))
    return runtime_error(
        "succession.none",
        fmt::format("host {} does not take this coordinator: {}", standby.host, why));
  if (standby.processes.empty())
    return runtime_error("succession.none", "no process of the job runs any more");
  standby.alone += Seconds(seconds_since(begin));
  return standby;
}

}  // namespace motley::run

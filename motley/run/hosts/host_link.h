#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/result.h"
#include "motley/run/hosts/arrival.h"
#include "motley/run/hosts/child_process.h"
#include "motley/run/hosts/frame.h"

namespace motley::run {

/// By which hosts keep a content.
std::string content_name(std::string_view bytes);

/// The coordinator's end of the pipe to a host's agent (agent.h). Requests and answers by one
/// thread; beats by any.
class HostLink {
 public:
  /// Starts the command; the agent's hello is waited for by `greet`.
  static Result<std::unique_ptr<HostLink>> start(const std::string& host,
                                                 std::vector<std::string> command);
  /// By a socket to an agent that somebody else has started.
  static std::unique_ptr<HostLink> over(const std::string& host, Descriptor socket);
  /// The agent sees the end of its input, and ends.
  ~HostLink();
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;

  const std::string& host() const { return host_; }
  void rename(std::string host) { host_ = std::move(host); }
  /// What the agent said first. Runtime error `host.unreachable`: it did not come, with what was
  /// tried and what that said.
  Result<Json> greet(double timeout_s);
  const std::string& scratch() const { return scratch_; }

  /// Runtime error `host.lost`: it is gone, or takes nothing for kMostSilence.
  Result<void> send(Json head, std::string_view bytes = {});
  /// The same without waiting: what does not fit is sent when the link is listened to.
  Result<void> post(Json head, std::string_view bytes = {});
  /// Is there something that has not been sent?
  bool has_more() const;
  int input_descriptor() const { return child_.input.number(); }
  /// Sends and waits for the answer that `is` what was asked.
  Result<Frame> ask(Json head, const std::string& is, double timeout_s);
  Result<Frame> wait_for(const std::string& is, double timeout_s);

  /// A file of this machine as SCRATCH/path.
  Result<void> put(const std::string& from, const std::string& path);
  Result<void> put_text(std::string_view text, const std::string& path);
  /// The same, which the host keeps by its content: sent only where it has it not.
  Result<void> share(const std::string& from, const std::string& path);
  /// Of a content that is known by its name.
  Result<void> share_named(const std::string& name, std::string_view bytes,
                           const std::string& path);
  /// What that is made of, where a name says what the content is. Does the host keep it?
  Result<bool> has(const std::string& name);
  /// Gives it what `write` gives to a sink, piece by piece, to keep under a name.
  using Sink = std::function<Result<void>(std::string_view piece)>;
  Result<void> keep(const std::string& name, const std::function<Result<void>(const Sink&)>& write);
  /// A kept file as SCRATCH/path.
  Result<void> link_kept(const std::string& name, const std::string& path);
  /// A symbolic link SCRATCH/path.
  Result<void> link(const std::string& path, const std::string& target);
  /// What lies below SCRATCH/path there, as `into` here. Error: nothing of it came for `patience`
  /// seconds, or of Arrival.
  Result<void> fetch(const std::string& path, const std::string& into, double patience);
  /// Begins the same: it comes whenever the link is read, until the arrival is over. It is the
  /// link's until it is forgotten, by the number.
  Result<int> begin_fetch(const std::string& path, const std::string& into);
  /// Of what the host keeps beyond the agent's time, below CACHE/kept.
  Result<void> fetch_kept(const std::string& path, const std::string& into, double patience);
  std::string kept_folder() const { return cache_ + "/kept"; }
  const Arrival& arrival(int number) const { return arrivals_.at(number); }
  void forget(int number) { arrivals_.erase(number); }

  /// The agent is to outlive this coordinator (standby.h), which the job calls by that name: once
  /// is enough. It is told without waiting.
  Result<void> make_standby(const std::string& host, const std::string& word, double patience);
  /// Where another coordinator may ask for it; 0: not known yet.
  int standby_port() const { return standby_port_; }
  /// The last version that it has said it remembers.
  std::int64_t remembered() const { return remembered_; }

  /// How long the agent may say, and take, nothing; for tests, else kMostSilence.
  void set_most_silence(double seconds) { most_silence_ = seconds; }
  /// A number that no process of the agent has had.
  int next_process() { return ++processes_; }
  /// Another coordinator gave it this one.
  void know_process(int number) { processes_ = std::max(processes_, number); }
  int descriptor() const { return child_.output.number(); }
  /// Reads what has come, without waiting, and keeps it. An error when the agent is gone or silent.
  Result<void> listen();
  /// The same, and gives what is no arrival's.
  Result<std::vector<Frame>> take();
  /// That the coordinator lives. Does not wait: what is being sent says so, too.
  void beat();

 private:
  HostLink(std::string host, std::vector<std::string> command);
  tl::unexpected<Error> lost(const std::string& why);
  Result<void> read(int wait_ms);
  Result<void> check_refused();
  Result<int> begin_fetch(Json head, const std::string& path, const std::string& into);
  Result<void> await(int number, const std::string& path, double patience);

  std::string host_;
  std::vector<std::string> command_;
  std::string words_;  ///< file of what the command says on stderr
  std::string scratch_, cache_;
  Child child_;
  double most_silence_;
  int processes_ = 0;
  FrameReader reader_;
  std::vector<Frame> waiting_;  // that came while something else was waited for
  std::map<int, Arrival> arrivals_;
  int fetches_ = 0;
  bool is_lost_ = false, is_standby_ = false;
  int standby_port_ = 0;
  std::int64_t remembered_ = 0;
  mutable std::mutex writing_;
  FrameWriter outbox_;
  std::chrono::steady_clock::time_point heard_at_ = std::chrono::steady_clock::now();
};

}  // namespace motley::run

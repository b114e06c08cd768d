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

/// Returns the name by which hosts keep a content.
std::string content_name(std::string_view bytes);

/// The coordinator's end of the pipe to an agent (agent.h). Used by one thread, except `beat`.
class HostLink {
 public:
  /// Starts the command. `greet` waits for the agent's hello.
  static Result<std::unique_ptr<HostLink>> start(const std::string& host,
                                                 std::vector<std::string> command);
  /// Wraps a socket to an agent that is already running.
  static std::unique_ptr<HostLink> over(const std::string& host, Descriptor socket);
  /// Closes the agent's input, which ends it.
  ~HostLink();
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;

  const std::string& host() const { return host_; }
  void rename(std::string host) { host_ = std::move(host); }
  /// Returns the agent's hello. Runtime error `host.unreachable`, with the command and its output.
  Result<Json> greet(double timeout_s);
  const std::string& scratch() const { return scratch_; }

  /// Sends a frame. Runtime error `host.lost`: it is gone, or takes nothing for kMostSilence.
  Result<void> send(Json head, std::string_view bytes = {});
  /// Sends without waiting: what does not fit is sent when the link is listened to.
  Result<void> post(Json head, std::string_view bytes = {});
  bool has_more() const;
  int input_descriptor() const { return child_.input.number(); }
  /// Sends a request and waits for the answer whose "is" equals `is`.
  Result<Frame> ask(Json head, const std::string& is, double timeout_s);
  Result<Frame> wait_for(const std::string& is, double timeout_s);

  /// Sends a local file as SCRATCH/path.
  Result<void> put(const std::string& from, const std::string& path);
  Result<void> put_text(std::string_view text, const std::string& path);
  /// Does the same by content: sends the file only if the host lacks it.
  Result<void> share(const std::string& from, const std::string& path);
  /// Does the same with content whose name is known.
  Result<void> share_named(const std::string& name, std::string_view bytes,
                           const std::string& path);
  /// Tells whether the host keeps a content. With keep and link_kept, it is share_named in steps.
  Result<bool> has(const std::string& name);
  /// Stores content under a name; `write` passes it piece by piece to a sink.
  using Sink = std::function<Result<void>(std::string_view piece)>;
  Result<void> keep(const std::string& name, const std::function<Result<void>(const Sink&)>& write);
  /// Makes stored content available as SCRATCH/path.
  Result<void> link_kept(const std::string& name, const std::string& path);
  Result<void> link(const std::string& path, const std::string& target);
  /// Brings files below SCRATCH/path to `into`. Error: none for `patience` seconds, or of Arrival.
  Result<void> fetch(const std::string& path, const std::string& into, double patience);
  /// Begins the same; it proceeds whenever the link is read. The link keeps it until `forget`.
  Result<int> begin_fetch(const std::string& path, const std::string& into);
  /// Does the same for files that outlive the agent, below CACHE/kept.
  Result<void> fetch_kept(const std::string& path, const std::string& into, double patience);
  std::string kept_folder() const { return cache_ + "/kept"; }
  const Arrival& arrival(int number) const { return arrivals_.at(number); }
  void forget(int number) { arrivals_.erase(number); }

  /// Makes the agent outlive this coordinator (standby.h). `host`: its name in the job. No waiting.
  Result<void> make_standby(const std::string& host, const std::string& word, double patience);
  /// Returns the port at which another coordinator can take over; 0: unknown yet.
  int standby_port() const { return standby_port_; }
  /// Returns the last version that the agent confirmed to remember.
  std::int64_t remembered() const { return remembered_; }

  /// Sets how long the agent may send, and take, nothing; for tests, else kMostSilence.
  void set_most_silence(double seconds) { most_silence_ = seconds; }
  /// Returns a number that no process of the agent has had.
  int next_process() { return ++processes_; }
  void know_process(int number) { processes_ = std::max(processes_, number); }
  int descriptor() const { return child_.output.number(); }
  /// Reads and keeps what has arrived, without waiting. Error: the agent is gone or silent.
  Result<void> listen();
  /// Does the same. Returns the frames that belong to no arrival.
  Result<std::vector<Frame>> take();
  /// Sends a heartbeat. Does not wait: data being sent is also a sign of life.
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
  std::string words_;  ///< file with the command's stderr
  std::string scratch_, cache_;
  Child child_;
  double most_silence_;
  int processes_ = 0;
  FrameReader reader_;
  std::vector<Frame> waiting_;  // arrived while something else was awaited
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

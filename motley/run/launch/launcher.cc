#include "motley/run/launch/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "motley/base/exit_code.h"
#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/run/checkpoints/checkpoint_carrier.h"
#include "motley/run/hosts/child_process.h"
#include "motley/run/hosts/elapsed.h"
#include "motley/run/hosts/remote_process_set.h"
#include "motley/run/hosts/signal_pipe.h"
#include "motley/run/hosts/status.h"
#include "motley/run/launch/diagnosis.h"
#include "motley/run/launch/failure.h"
#include "motley/run/launch/host_returns.h"

namespace motley::run {
namespace {

constexpr double kSilenceMargin = 5.0;  // seconds; workers' own timeouts come first
// Importing PyTorch from a cold disk, or the first use of a GPU, can take a minute.
constexpr double kStartFactor = 10.0;  // timeouts that loading may take
constexpr std::size_t kMostLogTail = 300;
constexpr double kKillAfterLost = 3;  // seconds; an unreachable host has already cost enough time
constexpr double kMostDying = 0.3;    // seconds; then the host counts as unreachable

/// Makes the folders of the run directory and removes what an earlier attempt left in them.
Result<void> prepare_directory(const Job& job) {
  std::error_code fault;
  for (const char* folder : {"/log", "/status"})
    if (!fault) std::filesystem::create_directories(job.run_dir + folder, fault);
  if (fault) return runtime_error("run.directory", job.run_dir + ": " + fault.message());
  // Left by an earlier attempt: ranks would meet at its addresses and wait for dead processes.
  std::filesystem::remove(job.run_dir + "/rendezvous", fault);
  for (std::size_t rank = 0; rank < job.devices.size(); ++rank)
    std::filesystem::remove(status_path(job.run_dir, static_cast<int>(rank)), fault);
  return {};
}

std::string log_path(const Job& job, int rank) {
  return fmt::format("{}/log/rank-{}.txt", job.run_dir, rank);
}

/// Returns the last line of a worker's stderr, for a death without an error event.
std::string log_tail(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return "";
  std::string_view rest = trim(*text);
  // The last line of a Python or C++ fault says what happened.
  const std::size_t line = rest.rfind('\n');
  std::string_view last = line == std::string_view::npos ? rest : rest.substr(line + 1);
  return std::string(last.substr(0, kMostLogTail));
}

/// A rank of the job: where it is started, and what is known of its process.
struct LaunchedRank {
  Seat seat;
  int exit_code = 0;                           // -1: it runs
  bool spoke_error = false;                    // sent an error event
  bool is_ready = true;                        // or nobody waits for it
  bool joins = false;                          // the running job, and is not ready yet
  std::optional<Clock::time_point> killed_at;  // on another machine; until its end is known

  bool runs() const { return exit_code < 0; }
  void begin() {
    exit_code = -1;
    spoke_error = is_ready = false;
  }
  void end(int code) {
    exit_code = code;
    is_ready = true;
  }
};

class Launch {
 public:
  Launch(const Job& job, const LaunchOptions& options,
         const std::function<void(const WorkerEvent&)>& on_event)
      : job_(job),
        options_(options),
        on_event_(on_event),
        diagnosis_(job),
        returns_(job, options.hosts),
        failure_(options.kill_after_s) {
    for (const Seat& seat : options.seats)
      if (!seat.agent.empty() && seat.job.empty()) returns_.lose(seat.agent);
  }

  JobOutcome run();

 private:
  Result<void> start_all();
  Result<void> start(int rank, std::vector<std::string> more = {});
  void adopt(int rank, int number);
  void join(int rank);
  void take_in(int rank);
  bool outlives(int rank, const Error& error);
  void lose(int rank, Error error);
  void lose_with_host(int rank, const std::string& what);
  LaunchedRank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const std::string& host_of(int rank) const {
    return job_.devices[static_cast<std::size_t>(rank)].host;
  }
  ProcessSet& process_set_of(int rank);
  void listen();
  void take_line(int rank, const std::string& line);
  void take_exit(int rank, int status);
  void take_lost(const Heard& heard);
  void take_returns();
  void check_dying();
  CheckpointCarrier* carrier_of(int rank);
  void carry();
  void give_orders();
  bool all_ended() const;
  bool goes_on() const;
  void check_signals();
  void check_silence();
  void check_deadlines();
  void signal_all(int signal);

  const Job& job_;
  const LaunchOptions& options_;
  const std::function<void(const WorkerEvent&)>& on_event_;
  Diagnosis diagnosis_;
  SignalPipe signals_;
  std::vector<LaunchedRank> ranks_;
  ProcessSets process_sets_;                           // by agent
  std::map<std::string, CheckpointCarrier> carriers_;  // by host that wrote some
  HostReturns returns_;
  Failure failure_;
  std::size_t stopped_ = 0;
  int interrupts_ = 0;
  Clock::time_point progress_at_ = Clock::now();
  std::uint64_t progress_ = 0;
  bool told_to_end_ = false;
  bool wish_heard_ = false;  // options_.stop became true, once
};

ProcessSet& Launch::process_set_of(int rank) {
  const std::string& agent = at(rank).seat.agent;
  std::unique_ptr<ProcessSet>& process_set = process_sets_[agent];
  // Ranks of another agent on this machine write their status files here themselves.
  if (!process_set && !agent.empty())
    process_set = std::make_unique<RemoteProcessSet>(options_.hosts->at(agent),
                                                     host_of(rank).empty() ? "" : job_.run_dir);
  if (!process_set)
    process_set = std::make_unique<LocalProcessSet>(options_.worker, signals_.mask_before());
  return *process_set;
}

Result<void> Launch::start_all() {
  const int ranks = static_cast<int>(job_.devices.size());
  for (std::size_t rank = 0; rank < job_.devices.size(); ++rank)
    ranks_.push_back({options_.seats.empty() ? Seat{"", options_.job_path} : options_.seats[rank]});
  for (int rank = 0; rank < ranks; ++rank) {
    if (job_.changes && job_.changes->is_absent(job_.devices[static_cast<std::size_t>(rank)].name))
      continue;
    if (const auto known = options_.adopted.find(rank); known != options_.adopted.end())
      adopt(rank, known->second);
    else if (options_.adopted.empty())
      MOTLEY_RETURN_IF_ERROR(start(rank));
  }
  return {};
}

void Launch::adopt(int rank, int number) {
  at(rank).exit_code = -1;
  process_set_of(rank).adopt({rank, {}, log_path(job_, rank), true}, number);
  on_event_({"ready", rank, {{"leads", false}}});
}

Result<void> Launch::start(int rank, std::vector<std::string> more) {
  at(rank).begin();
  std::vector<std::string> arguments = {options_.verb, at(rank).seat.job, "--rank",
                                        std::to_string(rank)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return process_set_of(rank).start(
      {rank, std::move(arguments), log_path(job_, rank), job_.changes.has_value()});
}

/// Adds a rank that the job gained; if its host lacks the files, as one that returns.
void Launch::take_in(int rank) {
  ranks_.resize(std::max(ranks_.size(), static_cast<std::size_t>(rank) + 1));
  const std::string& host = host_of(rank);
  Seat& seat = at(rank).seat = {host, host.empty() ? options_.job_path : ""};
  for (const LaunchedRank& each : ranks_)
    if (each.seat.agent == host && !each.seat.job.empty()) seat.job = each.seat.job;
  if (seat.job.empty()) returns_.lose(host);
  std::error_code code;  // of an earlier call
  std::filesystem::remove(status_path(job_.run_dir, rank), code);
}

/// Starts a rank that joins the running job, once its host is there.
void Launch::join(int rank) {
  const std::string& agent = at(rank).seat.agent;
  if (!returns_.is_lost(agent)) {
    const auto started = start(rank, {"--joins"});
    if (started) {
      at(rank).joins = true;
      return;
    }
    if (agent.empty()) return lose(rank, started.error());
    // It was lost unnoticed: nothing ran there, so nothing was listened to.
    returns_.lose(agent);
  }
  at(rank).end(kRuntimeFailure);
  returns_.begin(agent, rank);
}

/// Handles the loss of a rank without an exit.
void Launch::lose(int rank, Error error) {
  at(rank).end(kRuntimeFailure);
  if (outlives(rank, error)) return;
  if (error.code == "run.host-lost") failure_.hurry(kKillAfterLost);
  failure_.blame(Blame::kDeath, std::move(error));
}

/// Handles the loss of a rank with its host; `what` says what was noticed.
void Launch::lose_with_host(int rank, const std::string& what) {
  lose(rank, Error{ErrorKind::kRuntime, "run.host-lost",
                   fmt::format("{}; {} was last seen: {}", what, rank_name(job_, rank),
                               diagnosis_.where(rank))});
}

/// Tells whether the others continue without it.
bool Launch::outlives(int rank, const Error& error) {
  const bool ends = failure_.is_any() || told_to_end_ || interrupts_ > 1;
  return options_.on_loss && !ends && options_.on_loss(rank, error);
}

void Launch::take_line(int rank, const std::string& line) {
  progress_at_ = Clock::now();
  auto event = parse_event(line);
  if (!event) return;  // not ours: a library's output
  if (event->event == "ready") {
    at(rank).is_ready = true;
    at(rank).joins = false;
  }
  if (event->event == "done" && event->fields.value("reason", "") == "stopped") ++stopped_;
  if (event->event == "error") {
    at(rank).spoke_error = true;
    Error error = event_error(*event);
    if (outlives(rank, error)) return;
    // Records who waits for whom now, while the others are still in the same place.
    const bool consequence = error.code == "run.peer-lost" || error.code == "run.timeout";
    if (consequence) error.message += "; " + diagnosis_.all();
    failure_.blame(consequence ? Blame::kConsequence : Blame::kError, std::move(error));
  }
  const bool is_written = event->event == "checkpoint" || event->event == "evaluation";
  CheckpointCarrier* carrier = is_written ? carrier_of(rank) : nullptr;
  if (carrier != nullptr && carrier->keeps_back(*event)) return;
  on_event_(*event);
}

/// Returns the carrier for a rank's checkpoints; null: it writes here.
CheckpointCarrier* Launch::carrier_of(int rank) {
  const std::string& host = host_of(rank);
  if (host.empty() || options_.hosts == nullptr || returns_.is_lost(host)) return nullptr;
  return &carriers_.try_emplace(host, options_.hosts->on(host), job_.run_dir).first->second;
}

/// Reports checkpoints once they are safe here.
void Launch::carry() {
  for (auto& [host, carrier] : carriers_) {
    const auto safe = carrier.get_on();
    if (!safe && options_.on_loss && safe.error().code == "host.lost") continue;  // it is gone
    if (!safe) {
      failure_.blame(Blame::kError, safe.error());
      return signal_all(SIGTERM);
    }
    for (const WorkerEvent& event : *safe) on_event_(event);
    if (!carrier.has_carried()) continue;
    for (std::size_t rank = 0; rank < job_.devices.size(); ++rank)
      if (job_.devices[rank].host == host) on_event_({"carrying", static_cast<int>(rank), {}});
  }
}

void Launch::give_orders() {
  if (!options_.orders) return;
  while (const auto commands = options_.orders()) {
    for (const int rank : commands->added) take_in(rank);
    for (int rank = 0; rank < static_cast<int>(commands->lines.size()); ++rank) {
      const std::string& line = commands->lines[static_cast<std::size_t>(rank)];
      if (line.empty() || !at(rank).runs()) continue;
      const auto told = process_set_of(rank).tell(rank, line);
      // A lost host is reported by its link.
      if (!told && !options_.on_loss) failure_.blame(Blame::kError, told.error());
    }
    for (const int rank : commands->start) join(rank);
    for (const int rank : commands->kill) {
      if (!at(rank).runs()) continue;
      process_set_of(rank).signal_one(rank, SIGKILL);
      if (!at(rank).seat.agent.empty() && !at(rank).killed_at) at(rank).killed_at = Clock::now();
    }
  }
}

/// Gives up ranks whose hosts do not react to a kill; their agents kill them after a long silence.
void Launch::check_dying() {
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    std::optional<Clock::time_point>& killed_at = at(rank).killed_at;
    if (!killed_at || (at(rank).runs() && seconds_since(*killed_at) < kMostDying)) continue;
    killed_at.reset();
    if (!at(rank).runs()) continue;
    process_set_of(rank).forget(rank);
    lose_with_host(rank, fmt::format("host {} does not answer", host_of(rank)));
  }
}

void Launch::take_returns() {
  for (HostReturns::Return& each : returns_.take()) {
    if (each.reached)
      if (const auto named = options_.hosts->check_name(each.host, *each.reached); !named) {
        returns_.lose(each.host);
        each.reached = tl::make_unexpected(named.error());
      }
    if (each.reached) {
      carriers_.erase(each.host);  // of the previous agent
      process_sets_.erase(each.host);
      options_.hosts->take_in(each.host, std::move(*each.reached));
      for (LaunchedRank& rank : ranks_)
        if (rank.seat.agent == each.host) rank.seat.job = each.job;
    }
    for (const int rank : each.ranks)
      if (each.reached)
        join(rank);
      else
        lose(rank, each.reached.error());
  }
}

void Launch::listen() {
  std::vector<pollfd> waits{{signals_.number(), POLLIN, 0}};
  for (const auto& [host, carrier] : carriers_) carrier.add_waits(waits);
  for (const Heard& each : listen_to(process_sets_, std::move(waits))) {
    if (each.what == Heard::What::kLine) take_line(each.id, each.line);
    if (each.what == Heard::What::kExit) take_exit(each.id, each.status);
    if (each.what == Heard::What::kLost) take_lost(each);
  }
}

void Launch::take_lost(const Heard& heard) {
  if (options_.on_loss) {
    returns_.lose(host_of(heard.id));
    carriers_.erase(host_of(heard.id));  // its transfer is lost; the previous checkpoint is here
    // Its connection was already gone.
    if (std::exchange(at(heard.id).joins, false)) return join(heard.id);
  }
  lose_with_host(heard.id, heard.line);
}

void Launch::take_exit(int rank, int status) {
  at(rank).end(exit_code_of(status));
  const bool joins = std::exchange(at(rank).joins, false);
  const bool fine = at(rank).exit_code == 0 || at(rank).exit_code == kStopped;
  if (fine || at(rank).spoke_error || (told_to_end_ && WIFSIGNALED(status))) return;
  if (interrupts_ > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) {
    if (joins) return;  // it could not handle the signal yet; the others save and stop without it
    failure_.blame(Blame::kError, Error{ErrorKind::kRuntime, "run.interrupted", "interrupted"});
    return;
  }
  std::string message = fmt::format("{} {}; last seen: {}", rank_name(job_, rank),
                                    describe_exit(status), diagnosis_.where(rank));
  const std::string words = log_tail(log_path(job_, rank));
  if (!words.empty()) message += fmt::format("; its last words: {}", quote(words));
  Error error{ErrorKind::kRuntime, "run.worker-lost", std::move(message)};
  if (!outlives(rank, error)) failure_.blame(Blame::kDeath, std::move(error));
}

void Launch::signal_all(int signal) {
  for (const auto& [host, process_set] : process_sets_) process_set->signal(signal);
}

void Launch::check_signals() {
  int count = signals_.take([this](int signal) {
    if (options_.on_signal) options_.on_signal(signal);
  });
  if (options_.stop != nullptr && !wish_heard_ && *options_.stop) {
    wish_heard_ = true;
    if (interrupts_ == 0) ++count;  // after an interrupt they have already been told to stop
  }
  if (count == 0) return;
  interrupts_ += count;
  // Once: workers finish the step and save. Twice: somebody is in a hurry.
  if (interrupts_ == 1) {
    signal_all(SIGTERM);
    return;
  }
  failure_.blame(Blame::kDeath,
                 Error{ErrorKind::kRuntime, "run.interrupted",
                       "interrupted twice: workers were killed; the last checkpoint is "
                       "whole"});
  told_to_end_ = true;
  signal_all(SIGKILL);
}

void Launch::check_silence() {
  const std::uint64_t progress = diagnosis_.progress();
  if (progress != progress_) {
    progress_ = progress;
    progress_at_ = Clock::now();
  }
  // Longer than the workers' own timeouts: they know better which peer they wait for.
  const bool all_ready =
      std::all_of(ranks_.begin(), ranks_.end(), std::mem_fn(&LaunchedRank::is_ready));
  const double limit = job_.timeout.value * (all_ready ? 1.0 : kStartFactor) + kSilenceMargin;
  if (failure_.is_any() || all_ended() || seconds_since(progress_at_) < limit) return;
  failure_.blame(Blame::kError,
                 Error{ErrorKind::kRuntime, "run.timeout",
                       fmt::format("no worker got on for {:.0f} s: {}", limit, diagnosis_.all())});
}

void Launch::check_deadlines() {
  if (told_to_end_ || !failure_.is_overdue()) return;
  told_to_end_ = true;
  signal_all(SIGKILL);
}

bool Launch::all_ended() const {
  return std::none_of(ranks_.begin(), ranks_.end(), std::mem_fn(&LaunchedRank::runs));
}

/// Tells whether a worker runs or a checkpoint is coming, even that of a failed job.
bool Launch::goes_on() const {
  const bool is_carrying = std::any_of(carriers_.begin(), carriers_.end(),
                                       [](const auto& each) { return !each.second.is_idle(); });
  return !all_ended() || (is_carrying && interrupts_ < 2);
}

JobOutcome Launch::run() {
  auto started = prepare_directory(job_);
  if (started) started = start_all();
  if (!started) failure_.blame(Blame::kDeath, started.error());
  while (started && goes_on()) {
    give_orders();
    listen();
    take_returns();
    check_dying();
    carry();
    check_signals();
    check_silence();
    check_deadlines();
  }
  process_sets_.clear();  // stops what is left of them
  JobOutcome outcome;
  for (const LaunchedRank& rank : ranks_) outcome.exit_codes.push_back(rank.exit_code);
  outcome.error = failure_.error();
  if (!failure_.is_any()) outcome.end = stopped_ > 0 ? JobEnd::kStopped : JobEnd::kFinished;
  return outcome;
}

}  // namespace

JobOutcome launch(const Job& job, const LaunchOptions& options,
                  const std::function<void(const WorkerEvent&)>& on_event) {
  return Launch(job, options, on_event).run();
}

}  // namespace motley::run

#include "motley/run/launch/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "motley/base/exit_code.h"
#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/run/checkpoints/checkpoint_carrier.h"
#include "motley/run/hosts/child_process.h"
#include "motley/run/hosts/elapsed.h"
#include "motley/run/hosts/remote_process_set.h"
#include "motley/run/hosts/signal_pipe.h"
#include "motley/run/launch/diagnosis.h"
#include "motley/run/launch/host_returns.h"

namespace motley::run {
namespace {

constexpr int kTickMs = 50;
constexpr double kSilenceMargin = 5.0;  // seconds; workers' own timeouts come first
// Importing PyTorch from a cold disk, or the first use of a GPU, can take a minute.
constexpr double kStartFactor = 10.0;  // timeouts that loading may take
constexpr std::size_t kMostLogTail = 300;
constexpr double kKillAfterLost = 3;  // seconds; an unreachable host has already cost enough time
constexpr double kMostDying = 0.3;    // seconds; then the host counts as unreachable

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

Error event_error(const WorkerEvent& event) {
  const auto text = [&](const char* key) {
    return event.fields.contains(key) && event.fields[key].is_string()
               ? event.fields[key].get<std::string>()
               : std::string();
  };
  return Error{find_error_kind(text("kind")).value_or(ErrorKind::kRuntime), text("code"),
               text("message")};
}

class Launch {
 public:
  Launch(const Job& job, const LaunchOptions& options,
         const std::function<void(const WorkerEvent&)>& on_event)
      : job_(job),
        options_(options),
        on_event_(on_event),
        diagnosis_(job),
        seats_(options.seats),
        returns_(job, options.hosts),
        kill_after_s_(options.kill_after_s) {
    if (seats_.empty()) seats_.assign(job.devices.size(), {"", options.job_path});
    for (const Seat& seat : seats_)
      if (!seat.agent.empty() && seat.job.empty()) returns_.lose(seat.agent);
  }

  JobOutcome run();

 private:
  /// Orders failures by how likely each is the cause rather than a consequence.
  // When one worker dies, the others report lost peers, often before its death is seen. So the
  // outcome is the gravest failure reported until all have ended.
  enum class Blame { kNone, kConsequence, kError, kDeath };

  struct Carrying {
    Carrying(HostLink& link, const std::string& run_dir) : carrier(link, run_dir) {}
    CheckpointCarrier carrier;
    std::int64_t told = 0;  // bytes received, as last reported
  };

  Result<void> prepare_directory() const;
  Result<void> start_all();
  Result<void> start(std::size_t rank, std::vector<std::string> more = {});
  void adopt(std::size_t rank, int number);
  void join(int rank);
  void take_in(int rank);
  bool outlives(int rank, const Error& error);
  void lose(int rank, Error error);
  const Seat& seat_of(std::size_t rank) const { return seats_[rank]; }
  ProcessSet& process_set_of(std::size_t rank);
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
  void blame(Blame blame, Error error);
  void signal_all(int signal);
  std::string log_path(int rank) const;

  const Job& job_;
  const LaunchOptions& options_;
  const std::function<void(const WorkerEvent&)>& on_event_;
  Diagnosis diagnosis_;
  SignalPipe signals_;
  std::vector<Seat> seats_;                                          // by rank
  std::map<std::string, std::unique_ptr<ProcessSet>> process_sets_;  // by agent
  std::map<std::string, Carrying> carriers_;                         // by host that wrote some
  HostReturns returns_;
  std::map<int, Clock::time_point> dying_;  // remote ranks: since when
  std::set<int> joining_;                   // ranks that join the running job and are not ready yet
  std::vector<int> exit_codes_;             // by rank; -1: it runs
  std::vector<bool> spoke_error_;           // by rank: sent an error event
  std::vector<bool> is_ready_;              // by rank
  std::size_t stopped_ = 0;
  int interrupts_ = 0;
  Blame blame_ = Blame::kNone;
  Error error_;
  Clock::time_point failed_at_, progress_at_ = Clock::now();
  double kill_after_s_;
  std::uint64_t progress_ = 0;
  bool told_to_end_ = false;
  bool wish_heard_ = false;  // options_.stop became true, once
};

std::string Launch::log_path(int rank) const {
  return fmt::format("{}/log/rank-{}.txt", job_.run_dir, rank);
}

Result<void> Launch::prepare_directory() const {
  std::error_code fault;
  for (const char* folder : {"/log", "/status"})
    if (!fault) std::filesystem::create_directories(job_.run_dir + folder, fault);
  if (fault) return runtime_error("run.directory", job_.run_dir + ": " + fault.message());
  // Left by an earlier attempt: ranks would meet at its addresses and wait for dead processes.
  std::filesystem::remove(job_.run_dir + "/rendezvous", fault);
  for (std::size_t rank = 0; rank < job_.devices.size(); ++rank)
    std::filesystem::remove(fmt::format("{}/status/rank-{}", job_.run_dir, rank), fault);
  return {};
}

ProcessSet& Launch::process_set_of(std::size_t rank) {
  const Seat& seat = seat_of(rank);
  std::unique_ptr<ProcessSet>& process_set = process_sets_[seat.agent];
  // Ranks of another agent on this machine write their status files here themselves.
  if (!process_set && !seat.agent.empty())
    process_set = std::make_unique<RemoteProcessSet>(
        options_.hosts->at(seat.agent), job_.devices[rank].host.empty() ? "" : job_.run_dir);
  if (!process_set)
    process_set = std::make_unique<LocalProcessSet>(options_.worker, signals_.mask_before());
  return *process_set;
}

Result<void> Launch::start_all() {
  const std::size_t ranks = job_.devices.size();
  exit_codes_.assign(ranks, 0);
  spoke_error_.assign(ranks, false);
  is_ready_.assign(ranks, true);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (job_.changes && job_.changes->is_absent(job_.devices[rank].name)) continue;
    if (const auto known = options_.adopted.find(static_cast<int>(rank));
        known != options_.adopted.end())
      adopt(rank, known->second);
    else if (options_.adopted.empty())
      MOTLEY_RETURN_IF_ERROR(start(rank));
  }
  return {};
}

void Launch::adopt(std::size_t rank, int number) {
  const int id = static_cast<int>(rank);
  exit_codes_[rank] = -1;
  process_set_of(rank).adopt({id, {}, log_path(id), true}, number);
  on_event_({"ready", id, {{"leads", false}}});
}

Result<void> Launch::start(std::size_t rank, std::vector<std::string> more) {
  exit_codes_[rank] = -1;
  spoke_error_[rank] = is_ready_[rank] = false;
  std::vector<std::string> arguments = {options_.verb, seat_of(rank).job, "--rank",
                                        std::to_string(rank)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return process_set_of(rank).start({static_cast<int>(rank), std::move(arguments),
                                     log_path(static_cast<int>(rank)), job_.changes.has_value()});
}

/// Adds a rank that the job gained; if its host lacks the files, as one that returns.
void Launch::take_in(int rank) {
  const auto at = static_cast<std::size_t>(rank);
  seats_.resize(std::max(seats_.size(), at + 1));
  exit_codes_.resize(seats_.size(), 0);
  spoke_error_.resize(seats_.size(), false);
  is_ready_.resize(seats_.size(), true);
  const std::string& host = job_.devices[at].host;
  seats_[at] = {host, host.empty() ? options_.job_path : ""};
  for (const Seat& seat : seats_)
    if (seat.agent == host && !seat.job.empty()) seats_[at].job = seat.job;
  if (seats_[at].job.empty()) returns_.lose(host);
  std::error_code code;  // of an earlier call
  std::filesystem::remove(fmt::format("{}/status/rank-{}", job_.run_dir, rank), code);
}

/// Starts a rank that joins the running job, once its host is there.
void Launch::join(int rank) {
  const auto at = static_cast<std::size_t>(rank);
  const std::string& agent = seat_of(at).agent;
  if (!returns_.is_lost(agent)) {
    const auto started = start(at, {"--joins"});
    if (started) {
      joining_.insert(rank);
      return;
    }
    if (agent.empty()) return lose(rank, started.error());
    // It was lost unnoticed: nothing ran there, so nothing was listened to.
    returns_.lose(agent);
  }
  exit_codes_[at] = kRuntimeFailure;
  is_ready_[at] = true;
  returns_.begin(agent, rank);
}

/// Handles the loss of a rank without an exit.
void Launch::lose(int rank, Error error) {
  exit_codes_[static_cast<std::size_t>(rank)] = kRuntimeFailure;
  is_ready_[static_cast<std::size_t>(rank)] = true;  // nobody waits for it
  if (outlives(rank, error)) return;
  if (error.code == "run.host-lost") kill_after_s_ = std::min(kill_after_s_, kKillAfterLost);
  blame(Blame::kDeath, std::move(error));
}

/// Tells whether the others continue without it.
bool Launch::outlives(int rank, const Error& error) {
  const bool ends = blame_ != Blame::kNone || told_to_end_ || interrupts_ > 1;
  return options_.on_loss && !ends && options_.on_loss(rank, error);
}

void Launch::blame(Blame blame, Error error) {
  // The deadline counts from the first failure; later ones are its consequences.
  if (blame_ == Blame::kNone) failed_at_ = Clock::now();
  if (blame <= blame_) return;
  blame_ = blame;
  error_ = std::move(error);
}

void Launch::take_line(int rank, const std::string& line) {
  progress_at_ = Clock::now();
  auto event = parse_event(line);
  if (!event) return;  // not ours: a library's output
  if (event->event == "ready") {
    is_ready_[static_cast<std::size_t>(rank)] = true;
    joining_.erase(rank);
  }
  if (event->event == "done" && event->fields.value("reason", "") == "stopped") ++stopped_;
  if (event->event == "error") {
    spoke_error_[static_cast<std::size_t>(rank)] = true;
    Error error = event_error(*event);
    if (outlives(rank, error)) return;
    // Records who waits for whom now, while the others are still in the same place.
    const bool consequence = error.code == "run.peer-lost" || error.code == "run.timeout";
    if (consequence) error.message += "; " + diagnosis_.all();
    blame(consequence ? Blame::kConsequence : Blame::kError, std::move(error));
  }
  const bool is_written = event->event == "checkpoint" || event->event == "evaluation";
  CheckpointCarrier* carrier = is_written ? carrier_of(rank) : nullptr;
  if (carrier != nullptr && carrier->keeps_back(*event)) return;
  on_event_(*event);
}

/// Returns the carrier for a rank's checkpoints; null: it writes here.
CheckpointCarrier* Launch::carrier_of(int rank) {
  const std::string& host = job_.devices[static_cast<std::size_t>(rank)].host;
  if (host.empty() || options_.hosts == nullptr || returns_.is_lost(host)) return nullptr;
  return &carriers_.try_emplace(host, options_.hosts->on(host), job_.run_dir).first->second.carrier;
}

/// Reports checkpoints once they are safe here.
void Launch::carry() {
  for (auto& [host, carrying] : carriers_) {
    const auto safe = carrying.carrier.get_on();
    if (!safe && options_.on_loss && safe.error().code == "host.lost") continue;  // it is gone
    if (!safe) {
      blame(Blame::kError, safe.error());
      return signal_all(SIGTERM);
    }
    for (const WorkerEvent& event : *safe) on_event_(event);
    const std::int64_t carried = carrying.carrier.carried();
    if (std::exchange(carrying.told, carried) == carried) continue;
    for (std::size_t rank = 0; rank < job_.devices.size(); ++rank)
      if (job_.devices[rank].host == host) on_event_({"carrying", static_cast<int>(rank), {}});
  }
}

void Launch::give_orders() {
  if (!options_.orders) return;
  while (const auto commands = options_.orders()) {
    for (const int rank : commands->added) take_in(rank);
    for (std::size_t rank = 0; rank < commands->lines.size(); ++rank) {
      if (commands->lines[rank].empty() || exit_codes_[rank] >= 0) continue;
      const auto told = process_set_of(rank).tell(static_cast<int>(rank), commands->lines[rank]);
      // A lost host is reported by its link.
      if (!told && !options_.on_loss) blame(Blame::kError, told.error());
    }
    for (const int rank : commands->start) join(rank);
    for (const int rank : commands->kill) {
      if (exit_codes_[static_cast<std::size_t>(rank)] >= 0) continue;
      process_set_of(static_cast<std::size_t>(rank)).signal_one(rank, SIGKILL);
      if (!seat_of(static_cast<std::size_t>(rank)).agent.empty())
        dying_.try_emplace(rank, Clock::now());
    }
  }
}

/// Gives up ranks whose hosts do not react to a kill; their agents kill them after a long silence.
void Launch::check_dying() {
  for (auto each = dying_.begin(); each != dying_.end();) {
    const auto [rank, since] = *each;
    const bool has_ended = exit_codes_[static_cast<std::size_t>(rank)] >= 0;
    if (!has_ended && seconds_since(since) < kMostDying) {
      ++each;
      continue;
    }
    each = dying_.erase(each);
    if (has_ended) continue;
    process_set_of(static_cast<std::size_t>(rank)).forget(rank);
    lose(rank, Error{ErrorKind::kRuntime, "run.host-lost",
                     fmt::format("host {} does not answer; {} was last seen: {}",
                                 job_.devices[static_cast<std::size_t>(rank)].host,
                                 rank_name(job_, rank), diagnosis_.where(rank))});
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
      for (std::size_t rank = 0; rank < seats_.size(); ++rank)
        if (seats_[rank].agent == each.host) seats_[rank].job = each.job;
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
  for (const auto& [host, process_set] : process_sets_) process_set->add_waits(waits);
  for (const auto& [host, carrying] : carriers_) carrying.carrier.add_waits(waits);
  ::poll(waits.data(), waits.size(), kTickMs);
  std::vector<Heard> heard;
  for (const auto& [host, process_set] : process_sets_) process_set->listen(heard);
  for (const Heard& each : heard) {
    if (each.what == Heard::What::kLine) take_line(each.id, each.line);
    if (each.what == Heard::What::kExit) take_exit(each.id, each.status);
    if (each.what == Heard::What::kLost) take_lost(each);
  }
}

void Launch::take_lost(const Heard& heard) {
  if (options_.on_loss) {
    const std::string& host = job_.devices[static_cast<std::size_t>(heard.id)].host;
    returns_.lose(host);
    carriers_.erase(host);  // its transfer is lost; the previous checkpoint is here
    if (joining_.erase(heard.id) > 0) return join(heard.id);  // its connection was already gone
  }
  lose(heard.id, Error{ErrorKind::kRuntime, "run.host-lost",
                       fmt::format("{}; {} was last seen: {}", heard.line,
                                   rank_name(job_, heard.id), diagnosis_.where(heard.id))});
}

void Launch::take_exit(int rank, int status) {
  const auto at = static_cast<std::size_t>(rank);
  exit_codes_[at] = exit_code_of(status);
  is_ready_[at] = true;  // nobody waits for it
  const bool joins = joining_.erase(rank) > 0;
  const bool fine = exit_codes_[at] == 0 || exit_codes_[at] == kStopped;
  if (fine || spoke_error_[at] || (told_to_end_ && WIFSIGNALED(status))) return;
  if (interrupts_ > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) {
    if (joins) return;  // it could not handle the signal yet; the others save and stop without it
    blame(Blame::kError, Error{ErrorKind::kRuntime, "run.interrupted", "interrupted"});
    return;
  }
  std::string message = fmt::format("{} {}; last seen: {}", rank_name(job_, rank),
                                    describe_exit(status), diagnosis_.where(rank));
  const std::string words = log_tail(log_path(rank));
  if (!words.empty()) message += fmt::format("; its last words: {}", quote(words));
  Error error{ErrorKind::kRuntime, "run.worker-lost", std::move(message)};
  if (!outlives(rank, error)) blame(Blame::kDeath, std::move(error));
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
  blame(Blame::kDeath, Error{ErrorKind::kRuntime, "run.interrupted",
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
  const bool all_ready = std::count(is_ready_.begin(), is_ready_.end(), false) == 0;
  const double limit = job_.timeout.value * (all_ready ? 1.0 : kStartFactor) + kSilenceMargin;
  if (blame_ != Blame::kNone || all_ended() || seconds_since(progress_at_) < limit) return;
  blame(Blame::kError,
        Error{ErrorKind::kRuntime, "run.timeout",
              fmt::format("no worker got on for {:.0f} s: {}", limit, diagnosis_.all())});
}

void Launch::check_deadlines() {
  if (blame_ == Blame::kNone || told_to_end_) return;
  const double waited = seconds_since(failed_at_);
  if (waited < kill_after_s_) return;
  told_to_end_ = true;
  signal_all(SIGKILL);
}

bool Launch::all_ended() const {
  return std::count(exit_codes_.begin(), exit_codes_.end(), -1) == 0;
}

/// Tells whether a worker runs or a checkpoint is coming, even that of a failed job.
bool Launch::goes_on() const {
  const bool is_carrying = std::any_of(carriers_.begin(), carriers_.end(), [](const auto& each) {
    return !each.second.carrier.is_idle();
  });
  return !all_ended() || (is_carrying && interrupts_ < 2);
}

JobOutcome Launch::run() {
  auto started = prepare_directory();
  if (started) started = start_all();
  if (!started) blame(Blame::kDeath, started.error());
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
  outcome.exit_codes = exit_codes_;
  outcome.error = error_;
  if (blame_ == Blame::kNone) outcome.end = stopped_ > 0 ? JobEnd::kStopped : JobEnd::kFinished;
  return outcome;
}

/// Returns the error that a failing verb wrote as its last line, or its exit as an error.
Error verb_error(const std::string& worker, const std::string& output, int status) {
  const std::string_view text = trim(output);
  const std::size_t line = text.rfind('\n');
  const auto event = parse_event(line == std::string_view::npos ? text : text.substr(line + 1));
  if (event && event->event == "error") return event_error(*event);
  return Error{ErrorKind::kRuntime, "run.worker-lost",
               fmt::format("{} {}", worker, describe_exit(status))};
}

}  // namespace

JobOutcome launch(const Job& job, const LaunchOptions& options,
                  const std::function<void(const WorkerEvent&)>& on_event) {
  return Launch(job, options, on_event).run();
}

namespace {

/// Runs workers that each print one line. The destructor kills those that still run.
class SideBySide {
 public:
  SideBySide(std::string worker, Hosts* hosts) : worker_(std::move(worker)), hosts_(hosts) {}

  Result<void> start(const std::vector<WorkerTask>& tasks) {
    lines_.resize(tasks.size());
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      std::unique_ptr<ProcessSet>& process_set = process_sets_[tasks[i].host];
      if (!process_set && tasks[i].host.empty())
        process_set = std::make_unique<LocalProcessSet>(worker_, signals_.mask_before());
      if (!process_set)
        process_set = std::make_unique<RemoteProcessSet>(hosts_->on(tasks[i].host), "");
      MOTLEY_RETURN_IF_ERROR(process_set->start({static_cast<int>(i), tasks[i].arguments, ""}));
    }
    return {};
  }

  Result<std::vector<std::string>> lines(double timeout_s) {
    const auto begin = Clock::now();
    while (std::find(lines_.begin(), lines_.end(), "") != lines_.end()) {
      const auto missing = std::find(lines_.begin(), lines_.end(), "") - lines_.begin();
      if (seconds_since(begin) > timeout_s)
        return runtime_error("run.timeout",
                             fmt::format("{}: no result of worker {} of {} after {:.0f} s", worker_,
                                         missing + 1, lines_.size(), timeout_s));
      if (signals_.take() > 0) return runtime_error("run.interrupted", "interrupted");
      MOTLEY_RETURN_IF_ERROR(listen());
    }
    return lines_;
  }

 private:
  /// Waits a tick for output. Error: a worker reported one, or ended without a result.
  Result<void> listen() {
    std::vector<pollfd> waits = {{signals_.number(), POLLIN, 0}};
    for (const auto& [host, process_set] : process_sets_) process_set->add_waits(waits);
    ::poll(waits.data(), waits.size(), kTickMs);
    std::vector<Heard> heard;
    for (const auto& [host, process_set] : process_sets_) process_set->listen(heard);
    for (const Heard& each : heard) {
      std::string& line = lines_[static_cast<std::size_t>(each.id)];
      if (each.what == Heard::What::kLost) return runtime_error("run.host-lost", each.line);
      if (each.what == Heard::What::kLine) line = each.line;
      const auto event = parse_event(line);
      if (event && event->event == "error") return tl::make_unexpected(event_error(*event));
      if (each.what == Heard::What::kExit && line.empty())
        return tl::make_unexpected(verb_error(worker_, "", each.status));
    }
    return {};
  }

  std::string worker_;
  Hosts* hosts_;
  SignalPipe signals_;
  std::map<std::string, std::unique_ptr<ProcessSet>> process_sets_;  // by host
  std::vector<std::string> lines_;                                   // by task
};

SpawnOptions spawn_options(const std::string& program, const std::vector<std::string>& arguments,
                           const SignalPipe& signals) {
  SpawnOptions options;
  options.arguments = {program};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  options.mask = signals.mask_before();
  return options;
}

}  // namespace

Result<std::vector<std::string>> run_side_by_side(const std::string& worker,
                                                  const std::vector<WorkerTask>& tasks,
                                                  double timeout_s, Hosts* hosts) {
  SideBySide workers(worker, hosts);
  MOTLEY_RETURN_IF_ERROR(workers.start(tasks));
  return workers.lines(timeout_s);
}

Result<std::string> run_program(const std::string& program,
                                const std::vector<std::string>& arguments, double timeout_s) {
  SignalPipe signals;
  MOTLEY_ASSIGN(Child child, spawn(spawn_options(program, arguments, signals)));
  std::string output;
  const auto begin = Clock::now();
  bool late = false, interrupted = false;
  while (child.output.is_open() && !late) {
    pollfd waits[2] = {{child.output.number(), POLLIN, 0}, {signals.number(), POLLIN, 0}};
    if (::poll(waits, 2, kTickMs) > 0 && waits[0].revents != 0)
      read_lines(child, [&](const std::string& line) { output += line + "\n"; });
    if (signals.take() > 0) {
      ::kill(child.pid, interrupted ? SIGKILL : SIGTERM);
      interrupted = true;
    }
    late = seconds_since(begin) > timeout_s;
  }
  if (late) ::kill(child.pid, SIGKILL);
  const int status = wait_for_exit(child.pid);
  if (late)
    return runtime_error("run.timeout",
                         fmt::format("{} {}: not done after {:.0f} s", program,
                                     arguments.empty() ? "" : arguments[0], timeout_s));
  if (interrupted && WIFSIGNALED(status)) return runtime_error("run.interrupted", "interrupted");
  if (status != 0 && exit_code_of(status) != kStopped)
    return tl::make_unexpected(verb_error(program, output, status));
  return output;
}

}  // namespace motley::run

#include "motley/control/survey/local_workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "motley/base/file.h"
#include "motley/base/json_fields.h"
#include "motley/base/text.h"
#include "motley/control/run_directory.h"
#include "motley/control/scratch_directory.h"
#include "motley/control/survey/host_finding.h"
#include "motley/control/survey/worker_build.h"
#include "motley/program/program_text.h"
#include "motley/run/checkpoints/held_parts.h"
#include "motley/run/hosts/elapsed.h"
#include "motley/run/hosts/here.h"
#include "motley/run/hosts/key_server.h"
#include "motley/run/launch/left_checkpoint.h"
#include "motley/run/launch/programs.h"
#include "motley/run/launch/remote_job.h"

namespace motley::control {
namespace {

constexpr double kProfileTimeout = 1800;  // seconds; per device kind

std::string minor_of(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

/// Writes a task's job for a folder with its programs; `write` gets each path and text.
template <typename Write>
Result<std::string> write_profile_job(const TimingTask& task, const std::string& directory,
                                      bool lingers, const Write& write) {
  run::ProfileJob job;
  job.device = task.device;
  job.whole_steps = task.what == TimingTask::What::kWholeSteps;
  job.seconds_per_program = task.per_program.value;
  job.linger = lingers;
  for (const TimedProgram& each : task.programs) {
    job.programs.push_back(fmt::format("{}/{}.txt", directory, job.programs.size()));
    job.ranks.push_back(each.rank);
    MOTLEY_RETURN_IF_ERROR(write(job.programs.back(), program::print_program(*each.program)));
  }
  const std::string path = directory + "/profile.json";
  MOTLEY_RETURN_IF_ERROR(write(path, fields_to_json(job).dump()));
  return path;
}

Result<void> write_here(const std::string& path, const std::string& text) {
  std::error_code code;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), code);
  return write_file_atomic(path, text);
}

/// Adapts a recovery to a host. `keys`: where processes meet, if that has changed.
run::Change for_host(run::Hosts& hosts, const std::string& host, run::Change change,
                     const std::optional<run::StoreAddress>& keys) {
  change.keys = keys;
  if (keys && !host.empty()) change.keys->address = hosts.way_to(host).coordinator;
  if (!change.recovery->is_loaded()) return change;
  // The checkpoint to continue from is there, too.
  const auto there = [&](const std::string& on) {
    const std::string& path = change.recovery->from;
    return on.empty() ? path : hosts.on(on).scratch() + "/" + run::checkpoint_there(path);
  };
  run::TrainingPoint& point = change.recovery->point;
  point.saved_host = change.devices.front().host;  // it writes the next ones
  point.saved_path = there(point.saved_host);
  change.recovery->from = there(host);
  return change;
}

run::Commands command_of(const job::Order& order, const run::Job& job, run::Hosts& hosts,
                         const std::optional<run::StoreAddress>& keys) {
  run::Commands commands;
  if (const auto* change = std::get_if<run::Change>(&order)) {
    commands.lines.resize(job.devices.size());
    // A process that has just joined would begin this change alone, so it waits for its own order.
    std::set<int> told(change->processes.begin(), change->processes.end());
    for (int process = 0; change->processes.empty() && process < std::ssize(job.devices); ++process)
      told.insert(process);
    const bool is_loaded = change->recovery && change->recovery->is_loaded();
    std::set<std::string> placed = {""};
    for (const int process : told) {
      const run::WorkerDevice& device = job.devices[static_cast<std::size_t>(process)];
      // A lost host is reported later.
      if (is_loaded && placed.insert(device.host).second)
        (void)run::place_checkpoint(hosts.on(device.host), change->recovery->from);
      commands.lines[static_cast<std::size_t>(process)] =
          change->recovery
              ? run::print_order(for_host(hosts, device.host, *change, keys), device.name)
              : run::print_order(*change, device.name);
    }
  }
  if (const auto* halt = std::get_if<job::Halt>(&order))
    commands.lines.assign(job.devices.size(), run::print_halt(halt->number));
  if (const auto* follow = std::get_if<job::Follow>(&order)) {
    commands.lines.resize(job.devices.size());
    commands.lines[static_cast<std::size_t>(follow->process)] = run::print_follow(follow->number);
  }
  if (const auto* count = std::get_if<job::CountEvery>(&order))
    commands.lines.assign(job.devices.size(), run::print_counting(count->every));
  if (const auto* add = std::get_if<job::AddDevice>(&order)) commands.added = {add->process};
  if (const auto* start = std::get_if<job::StartProcess>(&order)) commands.start = {start->process};
  if (const auto* kill = std::get_if<job::KillProcess>(&order)) commands.kill = {kill->process};
  return commands;
}

/// Passes on the steps that the former coordinator saw but could not replicate with its log.
void tell_last_steps(const run::TakeoverState& inherited, const RunDirectory& directory,
                     const Workers::OnEvent& on_event) {
  const auto log = read_log(directory);
  for (const run::WorkerEvent& step : inherited.steps)
    if (!log || !log->steps.contains(step.fields.value("step", std::int64_t{-1})))
      (void)on_event(step);
}

/// A job with the word of a store, or of keys, must not be readable for others.
Result<void> write_job(const run::Job& job) {
  const bool has_word = job.store || (job.changes && job.changes->keys);
  return write_file_atomic(RunDirectory{job.run_dir}.job(), run::job_to_json(job).dump(2),
                           has_word ? Readers::kOwner : Readers::kAll);
}

/// Turns orders of a job with changing plans into commands, and replicates its state to its hosts.
class Commander {
 public:
  /// All outlive it; the job may gain devices. `inherited`: null if this process always led.
  Commander(run::Job& job, run::Hosts& hosts, const run::TakeoverState* inherited,
            const Workers::OnEvent& on_event, const Workers::Orders& orders)
      : job_(job), hosts_(hosts), on_event_(on_event), orders_(orders) {
    if (inherited != nullptr) moved_keys_ = job.changes->keys;
    if (job.changes->is_elastic && !run::remote_hosts(job).empty())
      takeover_.emplace(hosts, job, inherited ? inherited->host : run::own_host_name(), inherited);
    if (takeover_ && inherited != nullptr)
      takeover_->leave_checkpoint(run::find_left_checkpoint(*inherited), inherited->host);
  }

  /// Replicates a checkpoint that is complete.
  void hear_checkpoint(const run::WorkerEvent& event) {
    const std::string path = event.fields.value("path", "");
    const bool has_writer = event.rank >= 0 && event.rank < std::ssize(job_.devices);
    if (!takeover_ || path.empty() || !has_writer) return;
    takeover_->leave_checkpoint(path, job_.devices[static_cast<std::size_t>(event.rank)].host);
  }

  std::optional<run::Commands> next() {
    // Not at every event, but often while an answer is pending.
    if (takeover_ && (is_asked_ || run::seconds_since(looked_at_) > kLook)) {
      looked_at_ = run::Clock::now();
      takeover_->look();
    }
    if (takeover_) takeover_->send_files();
    if (is_asked_ && (!takeover_ || takeover_->may_coordinate())) {
      is_asked_ = false;
      (void)on_event_({"leads", -1, {}});
    }
    std::optional<job::Order> order = orders_ ? orders_() : std::nullopt;
    if (!order) return std::nullopt;
    if (auto* leave = std::get_if<job::Leave>(&*order)) {
      is_asked_ = true;
      if (takeover_) takeover_->leave(std::move(leave->what));
    }
    if (const auto* add = std::get_if<job::AddDevice>(&*order)) take_in(*add);
    return command_of(*order, job_, hosts_, moved_keys_);
  }

 private:
  /// Writes the job with the device, for processes that start from now on.
  void take_in(const job::AddDevice& add) {
    const auto at = static_cast<std::size_t>(add.process);
    job_.devices.resize(std::max(job_.devices.size(), at + 1));
    job_.devices[at] = add.device;
    (void)write_job(job_);  // a reader reports any fault
    (void)run::place_device(hosts_, job_, at);
  }

  static constexpr double kLook = 0.05;  // seconds
  run::Job& job_;
  run::Hosts& hosts_;
  const Workers::OnEvent& on_event_;
  const Workers::Orders& orders_;
  std::optional<run::StoreAddress> moved_keys_;  // where processes meet now
  std::optional<run::AgentTakeover> takeover_;
  run::Clock::time_point looked_at_;
  bool is_asked_ = false;  // waiting for hosts to confirm this coordinator
};

}  // namespace

LocalWorkers::LocalWorkers(std::string worker, const std::string& program, std::string version)
    : worker_(std::move(worker)),
      hosts_(
          [this, program](const std::string& host) {
            return run::is_this_machine(host) ? std::vector<std::string>{program, "agent"}
                                              : run::agent_command(way_in_, host, program);
          },
          {std::move(version), minor_of(read_worker_build(worker_).torch)}) {}

Result<std::string> LocalWorkers::torch_version() const {
  const auto [built, root, fault] = read_worker_build(worker_);
  if (built.empty() || !std::filesystem::exists(worker_))
    return usage_error("worker.missing",
                       worker_ +
                           ": not there; it trains and measures: build it with make, or "
                           "install the package motley-worker-2-15 for PyTorch 2.15, ...");
  const auto text = read_file(root + "/version.py");
  if (!text)
    return usage_error(
        "worker.torch",
        fmt::format("{}: no PyTorch there, and no interpreter that has one: pip install "
                    "torch=={}.*, or name one in MOTLEY_PYTHON, or its folder in {}",
                    root, minor_of(built), kTorchVariable));
  std::smatch match;
  if (!std::regex_search(*text, match, std::regex("__version__ = '([0-9]+\\.[0-9]+)[^']*'")))
    return usage_error("worker.version", root + "/version.py: found no version of PyTorch");
  if (match[1] != minor_of(built))
    return usage_error(
        "worker.version",
        fmt::format("{}: found PyTorch {}, motley-worker was built for {}; run make again, or "
                    "install the package of the worker for it",
                    root, match[1].str(), minor_of(built)));
  return minor_of(built);
}

Result<std::vector<std::vector<run::OpTime>>> LocalWorkers::time_programs(
    const std::vector<TimingTask>& tasks) {
  const ScratchDirectory scratch;
  std::set<std::string> hosts;
  for (const TimingTask& task : tasks)
    if (!task.device.host.empty()) hosts.insert(task.device.host);
  MOTLEY_RETURN_IF_ERROR(hosts_.reach(hosts));
  for (const std::string& host : hosts)
    MOTLEY_RETURN_IF_ERROR(hosts_.on(host).send({{"do", "reset"}}));
  std::vector<run::WorkerTask> verbs;
  for (const TimingTask& task : tasks) {
    const std::string& host = task.device.host;
    run::HostLink* link = host.empty() ? nullptr : &hosts_.on(host);
    const std::string directory = fmt::format(
        "{}/{}", link == nullptr ? scratch.path() : link->scratch() + "/run", verbs.size());
    MOTLEY_ASSIGN(std::string path,
                  write_profile_job(task, directory, tasks.size() > 1,
                                    [&](const std::string& name, const std::string& text) {
                                      if (link == nullptr) return write_here(name, text);
                                      const auto inside = name.substr(link->scratch().size() + 1);
                                      return link->put_text(text, inside);
                                    }));
    verbs.push_back({{"profile", std::move(path)}, host});
  }
  MOTLEY_ASSIGN(const auto lines, run::run_side_by_side(worker_, verbs, kProfileTimeout, &hosts_));
  std::vector<std::vector<run::OpTime>> times;
  for (const std::string& line : lines) {
    MOTLEY_ASSIGN(const Json json, parse_json(line, "motley-worker profile"));
    MOTLEY_ASSIGN(auto each, fields_from_json<run::OpTimes>(json, "motley-worker profile"));
    times.push_back(std::move(each.ops));
  }
  return times;
}

Result<run::MeasuredGroup> LocalWorkers::time_exchanges(const run::Job& job) {
  const ScratchDirectory scratch;
  run::Job here = job;
  here.run_dir = scratch.path();
  const std::string path = RunDirectory{here.run_dir}.job();
  MOTLEY_ASSIGN(std::vector<run::Seat> seats, run::place_job(hosts_, path, here));
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(path, run::job_to_json(here).dump()));
  Result<run::MeasuredGroup> times = run::MeasuredGroup{};
  const run::JobOutcome outcome =
      run::launch(here,
                  {.worker = worker_,
                   .job_path = path,
                   .hosts = &hosts_,
                   .seats = std::move(seats),
                   .verb = "collectives"},
                  [&](const run::WorkerEvent& event) {
                    if (event.event == "collectives")
                      times = fields_from_json<run::MeasuredGroup>(event.fields, "motley-worker");
                  });
  if (outcome.end == run::JobEnd::kFailed) return tl::make_unexpected(outcome.error);
  return times;
}

run::JobOutcome LocalWorkers::train(const run::Job& job, const OnEvent& on_event,
                                    const Orders& orders, const OnLoss& on_loss) {
  std::atomic<bool> stop = false;
  run::Job placed = job;
  const std::string path = RunDirectory{job.run_dir}.job();
  const bool is_here = run::remote_hosts(job).empty();
  std::unique_ptr<run::KeyServer> keys;
  if (placed.changes && (placed.changes->is_elastic || !is_here)) {
    auto started = run::KeyServer::start(is_here ? run::Callers::kThisMachine : run::Callers::kAll);
    if (!started) return {.end = run::JobEnd::kFailed, .error = started.error()};
    keys = std::move(*started);
    placed.changes->keys = {"127.0.0.1", keys->port(), keys->word()};
  }
  auto seats = find_seats(path, placed);
  if (!seats) return {.end = run::JobEnd::kFailed, .error = seats.error()};
  Result<void> done = placed == job ? Result<void>() : write_job(placed);
  if (!done) return {.end = run::JobEnd::kFailed, .error = done.error()};
  if (inherited_) tell_last_steps(*inherited_, {job.run_dir}, on_event);
  std::optional<Commander> commander;
  if (placed.changes)
    commander.emplace(placed, hosts_, inherited_ ? &*inherited_ : nullptr, on_event, orders);
  std::function<std::optional<run::Commands>()> commands;
  if (commander) commands = [&] { return commander->next(); };
  run::JobOutcome outcome =
      run::launch(placed,
                  {.worker = worker_,
                   .job_path = path,
                   .hosts = &hosts_,
                   .seats = std::move(*seats),
                   .adopted = inherited_ ? inherited_->processes : std::map<int, int>(),
                   .stop = &stop,
                   .on_signal =
                       [&](int signal) {
                         (void)on_event({"signal", -1, {{"signal", signal}}});
                       },
                   .orders = commands,
                   .on_loss = on_loss},
                  [&](const run::WorkerEvent& event) {
                    if (on_event(event) == Wish::kStop) stop = true;
                    if (event.event == "checkpoint" && commander) commander->hear_checkpoint(event);
                    if (event.event == "checkpoint" && !placed.kept.empty())
                      (void)run::retain_held(hosts_, placed);
                  });
  if (outcome.end == run::JobEnd::kFailed) return outcome;
  done = run::bring_traces(hosts_, placed);
  // The process that publishes models may be elsewhere, or lost after the last step.
  const bool has_lost = std::any_of(outcome.exit_codes.begin(), outcome.exit_codes.end(),
                                    [](int code) { return code != 0; });
  const bool may_be_undone = keys ? !is_here || has_lost : !placed.devices[0].host.empty();
  if (done && may_be_undone && outcome.end == run::JobEnd::kFinished)
    done = run::publish_models(placed);
  if (!done) return {.end = run::JobEnd::kFailed, .error = done.error()};
  return outcome;
}

Result<run::TakeoverState> LocalWorkers::take_over(const std::string& memory_file) {
  MOTLEY_ASSIGN(inherited_, run::AgentTakeover::take_over(hosts_, memory_file));
  return *inherited_;
}

Result<std::string> LocalWorkers::bring_left_checkpoint(const std::string& run_dir) {
  if (!inherited_) return std::string();
  return run::bring_left_checkpoint(hosts_, *inherited_, run_dir);
}

/// Places a new job's processes, or finds those of another coordinator.
Result<std::vector<run::Seat>> LocalWorkers::find_seats(const std::string& path, run::Job& job) {
  return inherited_ ? run::find_job(hosts_, job) : run::place_job(hosts_, path, job);
}

Result<FoundHosts> LocalWorkers::find_hosts(const std::vector<std::string>& hosts,
                                            const Tell& tell) {
  return ask_hosts(hosts_, hosts, tell);
}

Result<std::map<std::string, Seconds>> LocalWorkers::clocks_ahead(
    const std::set<std::string>& hosts) {
  MOTLEY_RETURN_IF_ERROR(hosts_.reach(hosts));
  std::map<std::string, Seconds> ahead;
  for (const std::string& host : hosts) {
    MOTLEY_ASSIGN(ahead[host], hosts_.clock_ahead(host));
  }
  return ahead;
}

Result<void> LocalWorkers::gather_held(const std::string& checkpoint) {
  return run::gather_held(hosts_, checkpoint);
}

Result<void> LocalWorkers::reach_by(const std::string& launcher) {
  MOTLEY_ASSIGN(way_in_, run::find_way_in(launcher));
  return {};
}

Result<void> LocalWorkers::gather(const run::RankPlace& place) {
  constexpr double kStarting = 300;  // seconds for a launcher to start all ranks
  return hosts_.gather(worker_, place.size, kStarting);
}

std::vector<std::string> LocalWorkers::launched_hosts() const {
  std::vector<std::string> hosts = hosts_.launched_hosts();
  if (!hosts.empty()) hosts.insert(hosts.begin(), run::own_host_name());
  return hosts;
}

void LocalWorkers::end(int code) { hosts_.end(code); }

}  // namespace motley::control

#include "motley/run/launch/programs.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "motley/base/exit_code.h"
#include "motley/base/text.h"
#include "motley/run/hosts/child_process.h"
#include "motley/run/hosts/elapsed.h"
#include "motley/run/hosts/remote_process_set.h"
#include "motley/run/hosts/signal_pipe.h"
#include "motley/run/job.h"

namespace motley::run {
namespace {

/// Returns the error that a failing verb wrote as its last line, or its exit as an error.
Error verb_error(const std::string& worker, const std::string& output, int status) {
  const std::string_view text = trim(output);
  const std::size_t line = text.rfind('\n');
  const auto event = parse_event(line == std::string_view::npos ? text : text.substr(line + 1));
  if (event && event->event == "error") return event_error(*event);
  return Error{ErrorKind::kRuntime, "run.worker-lost",
               fmt::format("{} {}", worker, describe_exit(status))};
}

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
  SignalPipe signals;
  ProcessSets process_sets;  // by host; its end kills those that still run
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    std::unique_ptr<ProcessSet>& process_set = process_sets[tasks[i].host];
    if (!process_set && tasks[i].host.empty())
      process_set = std::make_unique<LocalProcessSet>(worker, signals.mask_before());
    if (!process_set)
      process_set = std::make_unique<RemoteProcessSet>(hosts->on(tasks[i].host), "");
    MOTLEY_RETURN_IF_ERROR(process_set->start({static_cast<int>(i), tasks[i].arguments, ""}));
  }
  std::vector<std::string> lines(tasks.size());  // by task
  const auto begin = Clock::now();
  while (true) {
    const auto missing = std::find(lines.begin(), lines.end(), "");
    if (missing == lines.end()) return lines;
    if (seconds_since(begin) > timeout_s)
      return runtime_error("run.timeout",
                           fmt::format("{}: no result of worker {} of {} after {:.0f} s", worker,
                                       missing - lines.begin() + 1, lines.size(), timeout_s));
    if (signals.take() > 0) return runtime_error("run.interrupted", "interrupted");
    for (const Heard& each : listen_to(process_sets, {{signals.number(), POLLIN, 0}})) {
      std::string& line = lines[static_cast<std::size_t>(each.id)];
      if (each.what == Heard::What::kLost) return runtime_error("run.host-lost", each.line);
      if (each.what == Heard::What::kLine) line = each.line;
      const auto event = parse_event(line);
      if (event && event->event == "error") return tl::make_unexpected(event_error(*event));
      if (each.what == Heard::What::kExit && line.empty())
        return tl::make_unexpected(verb_error(worker, "", each.status));
    }
  }
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

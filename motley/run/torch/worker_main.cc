#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "motley/base/exit_code.h"
#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/run/launch/diagnosis.h"
#include "motley/run/launch/environment.h"
#include "motley/run/torch/cuda_library.h"
#include "motley/run/torch/rank_generations.h"
#include "motley/run/torch/rank_training.h"
#include "motley/run/torch/relay.h"
#include "motley/run/torch/scripted_training.h"
#include "motley/run/torch/torch_version.h"
#include "motley/run/torch/worker_collectives.h"
#include "motley/run/torch/worker_profile.h"

// motley-worker: one rank of a job, or one measurement. Started by `motley`, or by torchrun, srun
// or mpirun (docs/formats/job.md). Writes its result to standard output, one event per line.

extern char** environ;

namespace motley::run {
namespace {

// Visible to signal handlers.
std::atomic<RankTraining*> training_to_stop{nullptr};
std::atomic<bool> stop_requested{false};

void on_stop_signal(int) {
  stop_requested = true;
  if (RankTraining* training = training_to_stop.load()) training->request_stop();
}

struct CommandLine {
  std::string verb;
  WorkerArguments arguments;
  std::optional<int> parent;
};

std::map<std::string, std::string> read_environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos)
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

Result<int> read_number(const std::string& option, const std::string& text) {
  const auto number = find_integer(text);
  if (number && *number >= 0 && *number <= INT32_MAX) return static_cast<int>(*number);
  return usage_error("run.arguments", option + ": found '" + text + "', wanted a number");
}

/// Tells whether the verb belongs to a rank that an external launcher started.
bool is_launched(const std::string& verb) { return verb == "relay" || verb == "join-script"; }

Result<CommandLine> read_command_line(const std::vector<std::string>& words) {
  CommandLine line;
  std::vector<std::string> plain;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--joins") {
      line.arguments.joins = true;
      continue;
    }
    const bool is_option = words[i] == "--rank" || words[i] == "--parent";
    if (!is_option) {
      plain.push_back(words[i]);
      continue;
    }
    MOTLEY_ASSIGN(const int number,
                  read_number(words[i], i + 1 < words.size() ? words[i + 1] : ""));
    (words[i] == "--rank" ? line.arguments.rank : line.parent) = number;
    ++i;
  }
  line.verb = plain.empty() ? "" : plain[0];
  const bool takes_job = line.verb == "run" || line.verb == "profile" ||
                         line.verb == "collectives" || line.verb == "script";
  const bool known = takes_job || line.verb == "version" || is_launched(line.verb);
  const bool may_have_path = takes_job || line.verb == "relay";
  if (!known || plain.size() > (may_have_path ? 2u : 1u) || plain.size() < (takes_job ? 2u : 1u))
    return usage_error("run.arguments",
                       "usage: motley-worker version | run JOB | script JOB | join-script | "
                       "profile JOB | collectives JOB | relay [SOCKET], with --rank R in a local "
                       "job; `motley` starts it");
  if (plain.size() > 1) line.arguments.job_path = plain[1];
  if (!line.arguments.rank) {
    MOTLEY_ASSIGN(line.arguments.place, find_rank_place(read_environment()));
  }
  if (is_launched(line.verb) && !line.arguments.place)
    return usage_error("run.arguments",
                       line.verb + ": no launcher's variables (RANK, WORLD_SIZE, ...)");
  return line;
}

/// The process ends with its parent; a dead peer is an error, not a signal; SIGTERM asks to stop.
void set_up_process(const CommandLine& line) {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file that is too large is an error of the write
  struct sigaction stop {};
  stop.sa_handler = line.verb == "run" ? on_stop_signal : SIG_DFL;
  // A relay ends when its peers have ended; a launcher signals all processes.
  if (line.verb == "relay") stop.sa_handler = SIG_IGN;
  stop.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &stop, nullptr);
  ::sigaction(SIGINT, &stop, nullptr);
  // Ctrl-C reaches the whole foreground group; the parent passes it on as SIGTERM.
  if (line.parent) ::signal(SIGINT, SIG_IGN);
  if (!line.parent) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != *line.parent) ::_exit(1);  // the parent died before the line above
}

Result<void> report_version(const Reporter& reporter) {
  Json devices = Json::array();
  std::string why;
  const auto cuda = load_cuda();
  if (cuda) {
    MOTLEY_ASSIGN(const std::vector<CudaDevice> found, (*cuda)->devices());
    for (const CudaDevice& device : found)
      devices.push_back(Json{{"index", device.index},
                             {"name", device.name},
                             {"uuid", device.uuid},
                             {"capability", device.capability},
                             {"memory", device.memory.value}});
  } else {
    why = cuda.error().message;
  }
  reporter.result(Json{{"torch", loaded_torch_version()},
                       {"built_for", built_torch_version()},
                       {"cuda_devices", std::move(devices)},
                       {"cuda_note", why}});
  return {};
}

/// Adds the lost ranks to errors of a launcher's job: nobody else would name them.
Error explain(Error error, const WorkerSession& session, const WorkerArguments& arguments) {
  const bool lost = error.code == "run.peer-lost" || error.code == "run.timeout";
  if (!lost || !arguments.place || session.job.devices.empty()) return error;
  constexpr int kMoment = 200'000;  // microseconds for a dying process to be gone
  ::usleep(kMoment);
  Diagnosis diagnosis(session.job);
  for (const int rank : diagnosis.find_lost())
    error.message += fmt::format("; lost {}, last seen: {}", rank_name(session.job, rank),
                                 diagnosis.where(rank));
  return error;
}

int fail(const Reporter& reporter, const Error& error, const std::string& instruction) {
  reporter.error(error, instruction);
  return exit_code(error);
}

/// Reports an error of a running job and exits without destroying anything: a lane may be blocked
/// in a collective, and closing our sockets is what wakes the peers.
[[noreturn]] void leave(const Reporter& reporter, const WorkerSession& session,
                        const WorkerArguments& arguments, const Error& error) {
  const std::string instruction = Diagnosis(session.job).where(session.rank);
  std::_Exit(fail(reporter, explain(error, session, arguments), instruction));
}

/// Passes on a signal that came while no training ran.
void stop_by_signal(RankTraining* training) {
  training_to_stop = training;
  if (stop_requested && training != nullptr) training->request_stop();
}

int train_in_generations(WorkerSession& session, const WorkerArguments& arguments,
                         const Reporter& reporter) {
  const auto generations = RankGenerations::open(session, reporter, stop_by_signal);
  if (!generations) leave(reporter, session, arguments, generations.error());
  const auto end = (*generations)->run();
  training_to_stop = nullptr;
  if (!end) leave(reporter, session, arguments, end.error());
  // At once: the thread that reads orders waits for more.
  std::_Exit(*end == RankTraining::End::kStopped ? kStopped : 0);
}

int train(WorkerSession& session, const WorkerArguments& arguments, const Reporter& reporter) {
  if (session.job.changes) return train_in_generations(session, arguments, reporter);
  const auto training = RankTraining::open(session, reporter);
  if (!training) leave(reporter, session, arguments, training.error());
  stop_by_signal(training->get());
  const auto end = (*training)->run();
  training_to_stop = nullptr;
  if (!end) leave(reporter, session, arguments, end.error());
  return *end == RankTraining::End::kStopped ? kStopped : 0;
}

int follow_script(WorkerSession& session, const WorkerArguments& arguments,
                  const Reporter& reporter) {
  const auto scripted = ScriptedTraining::open(session, reporter);
  if (!scripted) leave(reporter, session, arguments, scripted.error());
  const auto done = (*scripted)->run();
  if (!done) leave(reporter, session, arguments, done.error());
  return 0;
}

int measure(WorkerSession& session, const WorkerArguments& arguments, const Reporter& reporter) {
  const auto measured = measure_collectives(session, reporter);
  if (!measured) leave(reporter, session, arguments, measured.error());
  return 0;
}

int run_job(const CommandLine& line, Reporter& reporter) {
  const WorkerArguments& arguments = line.arguments;
  reporter.set_rank(arguments.place ? arguments.place->rank : arguments.rank.value_or(0));
  auto session = open_session(arguments, reporter);
  if (!session) return fail(reporter, session.error(), "");
  if ((*session)->is_idle) {
    reporter.event("done", Json{{"steps", 0}, {"reason", "idle"}});
    return 0;
  }
  if (line.verb == "collectives") return measure(**session, arguments, reporter);
  const bool is_scripted = line.verb == "script" || line.verb == "join-script";
  return is_scripted ? follow_script(**session, arguments, reporter)
                     : train(**session, arguments, reporter);
}

int run_verb(const CommandLine& line, Reporter& reporter) {
  if (line.verb == "relay") {
    const auto carried = carry_bytes(*line.arguments.place, line.arguments.job_path, reporter);
    return carried ? 0 : fail(reporter, carried.error(), "");
  }
  if (line.verb != "version" && line.verb != "profile") return run_job(line, reporter);
  const auto done = line.verb == "version" ? report_version(reporter)
                                           : run_profile(line.arguments.job_path, reporter);
  return done ? 0 : fail(reporter, done.error(), "");
}

int worker_main(const std::vector<std::string>& words) {
  Reporter reporter;
  if (const auto fits = check_torch_version(); !fits) return fail(reporter, fits.error(), "");
  const auto line = read_command_line(words);
  if (!line) return fail(reporter, line.error(), "");
  set_up_process(*line);
  return run_verb(*line, reporter);
}

}  // namespace
}  // namespace motley::run

int main(int count, char** arguments) {
  const int code = motley::run::worker_main({arguments + 1, arguments + count});
  // At once: threads may be blocked in a dead group, and tensors must not outlive the library.
  std::_Exit(code);
}

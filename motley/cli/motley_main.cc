#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "motley/cli/app.h"
#include "motley/control/clock.h"
#include "motley/control/survey/local_workers.h"
#include "motley/control/survey/worker_build.h"

extern char** environ;

int main(int argc, char** argv) {
  std::error_code code;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", code);
  const std::filesystem::path program = code ? std::filesystem::path(argv[0]) : self;
  const std::string worker = motley::control::worker_of(program.string());
  motley::control::use_torch_elsewhere(worker);
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  std::signal(SIGPIPE, SIG_IGN);
  motley::control::LocalWorkers workers(worker, program.string(), motley::cli::version());
  const motley::control::SystemClock clock;
  return motley::cli::run_app({argv + 1, argv + argc}, {.environment = std::move(environment),
                                                        .workers = &workers,
                                                        .clock = &clock,
                                                        .program = program.string(),
                                                        .terminal = ::isatty(2) != 0});
}

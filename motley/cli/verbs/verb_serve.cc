#include <fmt/format.h>
#include <signal.h>

#include "motley/base/json.h"
#include "motley/cli/context/verb.h"
#include "motley/control/view/live_page.h"

namespace motley::cli {
namespace {

struct ServeOptions {
  std::string run_dir;
  int port = 0;
};

std::vector<Flag> serve_flags(ServeOptions& options) {
  return {{"run-dir", &options.run_dir, "run directory"},
          {"--port", &options.port, "port on 127.0.0.1; 0: any free port", kShown}};
}

Result<int> serve_run(const ServeOptions& options, const Context& context) {
  // Signals are blocked before any thread starts, so that sigwait below receives them.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  MOTLEY_ASSIGN(const auto page, control::LivePage::start(options.run_dir, options.port));
  context.result(fmt::format("{} shows {} until Ctrl-C; for browsers of this machine\n",
                             page->address(), options.run_dir),
                 Json{{"address", page->address()}, {"run_dir", options.run_dir}});
  int signal = 0;
  sigwait(&ends, &signal);
  return kDone;
}

}  // namespace

Verb serve_verb() {
  return make_verb("serve", "serve a page that follows a run", serve_flags, serve_run);
}

}  // namespace motley::cli

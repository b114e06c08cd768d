#include <fmt/format.h>

#include "motley/base/file.h"
#include "motley/cli/context/verb.h"
#include "motley/control/run_directory.h"
#include "motley/report/report.h"

namespace motley::cli {
namespace {

struct TraceOptions {
  std::string run_dir;
  std::string output;
};

std::vector<Flag> trace_flags(TraceOptions& options) {
  return {{"run-dir", &options.run_dir, "run directory"},
          {"-o,--output", &options.output, "file to write (default: RUN-DIR/trace.json)"}};
}

Result<int> write_trace(const TraceOptions& options, const Context& context) {
  MOTLEY_ASSIGN(const control::FinishedRun run, control::read_run(options.run_dir));
  const std::string output =
      options.output.empty() ? options.run_dir + "/trace.json" : options.output;
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(output, report::print_chrome_trace(run.measured)));
  context.result(fmt::format("wrote {}: open it in chrome://tracing or Perfetto\n", output),
                 {{"trace", output}, {"intervals", run.measured.intervals.size()}});
  return kDone;
}

}  // namespace

Verb trace_verb() {
  return make_verb("trace", "write a run's trace for chrome://tracing or Perfetto", trace_flags,
                   write_trace);
}

}  // namespace motley::cli

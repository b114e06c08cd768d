#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/exit_code.h"
#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::cli {

/// What every verb may use: flags that all verbs share, and what lies outside the process. The only
/// place that knows the environment.
struct Context {
  bool json = false;
  bool quiet = false;
  bool terminal = false;  ///< stderr is a terminal: progress may be redrawn in place
  std::map<std::string, std::string> environment;
  std::string worker;         ///< path of motley-worker
  std::string profile_store;  ///< default path of the profile store
  std::string print_phase, stop_after, dump_dir;

  /// Result for people, or the JSON object, to stdout. With --json only `json` is printed.
  void result(const std::string& text, const Json& object) const;
  /// A line of progress or a note, to stderr unless --quiet.
  void note(const std::string& line) const;
};

/// One of the phases load, price, search, synth, simulate, report: prints the artifact when asked
/// for by --print, writes it into --dump-dir ("04-synth.txt"). True: --stop-after asks to stop
/// here.
bool phase(const Context& context, const std::string& name,
           const std::function<std::string()>& text);

/// Prints an error as people read it, and as JSON {"error": {...}} with --json. Returns its exit
/// code.
int report_error(const Context& context, const Error& error);

/// A step count with rate and time left, redrawn in place on a terminal, else a line now and then.
class Progress {
 public:
  Progress(const Context& context, std::string what) : context_(&context), what_(std::move(what)) {}
  ~Progress();
  /// `done` of `total`; `detail` is shown behind.
  void update(std::int64_t done, std::int64_t total, const std::string& detail = "");

 private:
  const Context* context_;
  std::string what_;
  double last_ = -1;
  bool drawn_ = false;
};

/// Seconds of a steady clock, and of the calendar's epoch.
double steady_seconds();
double calendar_seconds();

}  // namespace motley::cli

#pragma once

#include <functional>
#include <optional>
#include <string>

#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::run {

/// Seconds without a message after which an agent and its coordinator take each other for dead.
inline constexpr double kMostSilence = 20;
inline constexpr double kBeatEvery = 2;  // seconds between heartbeats

/// What `motley agent` needs from its host.
struct AgentOptions {
  int input = 0, output = 1;
  std::string worker;   ///< path of motley-worker
  std::string program;  ///< path of motley
  std::string cache;    ///< folder: files by content, and a folder for the agent's lifetime
  Json hello;           ///< added to the first message to the coordinator
  std::function<Result<Json>()> probe;  ///< describes the host
  double most_silence = kMostSilence;   ///< of the coordinator, seconds
  /// Passes SIGTERM and SIGINT to its processes and continues: its launcher signals all ranks.
  bool passes_signals = false;
};

/// Serves a coordinator until its input ends or falls silent; then kills its processes and removes
/// its folder. Speaks in frames (frame.h). Requests and answers:
///
///   {"do": "beat"}                          nothing
///   {"do": "have", "hash"}                  {"is": "have", "hash", "there"}
///   {"do": "write", "path", "end"} BYTES    nothing; the next piece of a file in the folder
///   {"do": "keep", "hash", "end"} BYTES     nothing; likewise of a file in the cache, by content
///   {"do": "link", "path", "target"}        nothing; a symbolic link in the folder
///   {"do": "exists", "path"}                {"is": "exists", "path", "there"}; any path
///   {"do": "names", "hosts"}                {"is": "names", "here"}: which of them are this host
///   {"do": "reset"}                         nothing; empties SCRATCH/run and makes its folders
///   {"do": "reset", "run"}                  nothing; uses another agent's run directory
///   {"do": "start", "id", "rank", "arguments"}  nothing; starts motley-worker
///   {"do": "tell", "id"} BYTES              nothing; a line for the process's standard input
///   {"do": "signal", "signal"}              nothing; to all processes, or to the one with "id"
///   {"do": "fetch", "path", "number"}       {"is": "file", "number", "path", "end"} BYTES ...,
///                                           {"is": "link", "number", "path", "target"},
///                                           {"is": "fetched", "number"}; as other messages permit
///   {"do": "fetch", "kept", "number"}       likewise of a path below CACHE/kept, which outlives
///                                           the agent
///   {"do": "retain", "kept", "steps"}       nothing; below CACHE/kept/KEPT removes folders step-N
///                                           before the last of the steps and not among them
///   {"do": "port"}                          {"is": "port", "port"}
///   {"do": "clock"}                         {"is": "clock", "time"}: calendar time, in seconds
///   {"do": "listen", "address", "word"}     {"is": "listening", "port"}; for measure_wire
///   {"do": "wire", "id", "what", "seconds", "address", "port", "word"}
///                                           {"is": "wire", "id", "latency", "bandwidth"}; several
///                                           may run; what: "ping", "settle", "together"
///   {"do": "probe"}                         {"is": "probe", "host"}
///   {"do": "outlive", "host", "word", "patience"}  {"is": "outlives", "port"}: the agent and its
///                                           processes outlive the coordinator (standby.h)
///   {"do": "remember", "version"} BYTES     {"is": "remembered", "version"}; the standby's memory
///   {"do": "append", "path"} BYTES          nothing; to a file in the folder
///   {"do": "settle", "path", "as"}          nothing; moves what was appended into its final place
///   {"do": "end", "code"}                   nothing; ends the agent
///
/// An agent that outlived its coordinator greets the next one with a hello that adds "memory";
/// "processes", pairs of id and rank that run; "lines", the last that they printed; and "alone",
/// the seconds without a coordinator. Unasked it sends {"is": "hello", ...}, {"is": "line", "id",
/// "text"}, {"is": "log", "id"} BYTES, {"is": "exit", "id", "status"}, {"is": "status", "id",
/// "record"}, {"is": "beat"} and, for a failed request, {"is": "failed", "do", "number", "code",
/// "message"}. It never waits for the coordinator to read: it sends files piece by piece while it
/// listens and beats. Returns the code of "end"; none if its input ended without one.
Result<std::optional<int>> serve_agent(const AgentOptions& options);

}  // namespace motley::run

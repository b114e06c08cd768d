#pragma once

#include <functional>
#include <optional>
#include <string>

#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::run {

/// An agent that hears nothing of its coordinator for so long, or the other way, takes it for dead.
inline constexpr double kMostSilence = 20;  // seconds
inline constexpr double kBeatEvery = 2;

/// What `motley agent` needs of its host.
struct AgentOptions {
  int input = 0, output = 1;
  std::string worker;   ///< path of motley-worker
  std::string program;  ///< path of motley
  std::string cache;    ///< folder: files by content, and a folder for the time of the agent
  Json hello;           ///< that the coordinator is told at first, beside "scratch"
  std::function<Result<Json>()> probe;  ///< what the host is
  double most_silence = kMostSilence;   ///< of the coordinator, seconds
  /// SIGTERM and SIGINT are for its processes, and it goes on: whoever started it tells all.
  bool passes_signals = false;
};

/// Does what a coordinator asks, until its input ends or falls silent; then its processes are
/// killed and its folder is removed. Frames (frame.h); what the coordinator asks, and what is
/// answered:
///
///   {"do": "beat"}                          nothing
///   {"do": "have", "hash"}                  {"is": "have", "hash", "there"}
///   {"do": "write", "path", "end"} BYTES    nothing; the next piece of a file in the folder
///   {"do": "keep", "hash", "end"} BYTES     nothing; of a file in the cache, by its content
///   {"do": "link", "path", "target"}        nothing; a symbolic link in the folder
///   {"do": "exists", "path"}                {"is": "exists", "path", "there"}; any path
///   {"do": "names", "hosts"}                {"is": "names", "here"}: which of them are this one
///   {"do": "reset"}                         nothing; SCRATCH/run is empty, with its folders
///   {"do": "reset", "run"}                  nothing; the run directory is that of another agent
///   {"do": "start", "id", "rank", "arguments"}  nothing; motley-worker
///   {"do": "signal", "signal"}              nothing; to all processes
///   {"do": "fetch", "path", "number"}       as what else is to be said leaves room:
///                                           {"is": "file", "number", "path", "end"} BYTES ...,
///                                           {"is": "link", "number", "path", "target"},
///                                           {"is": "fetched", "number"}
///   {"do": "fetch", "kept", "number"}       the same of a path below CACHE/kept, where processes
///                                           leave what outlives the agent
///   {"do": "retain", "kept", "steps"}       nothing; of folders step-N anywhere below
///   CACHE/kept/KEPT
///                                           those before the last of the steps that are none of
///                                           them are removed
///   {"do": "port"}                          {"is": "port", "port"}
///   {"do": "clock"}                         {"is": "clock", "time"}: its calendar, in seconds
///   {"do": "listen", "address", "word"}     {"is": "listening", "port"}; for measure_wire
///   {"do": "wire", "id", "what", "seconds", "address", "port", "word"}
///                                           {"is": "wire", "id", "latency", "bandwidth"}; several
///                                           at a time, what: "ping", "settle", "together"
///   {"do": "probe"}                         {"is": "probe", "host"}
///   {"do": "outlive", "host", "word", "patience"}  {"is": "outlives", "port"}: from now on it and
///                                           its processes outlive the coordinator (standby.h)
///   {"do": "remember", "version"} BYTES     {"is": "remembered", "version"}; the standby's memory
///   {"do": "append", "path"} BYTES          nothing; to a file in the folder
///   {"do": "end", "code"}                   nothing; the agent's work is done
///
/// One that outlives its coordinator says hello to the next, with "memory", with "processes", which
/// run, as pairs of id and rank, with "lines", the last that they printed, and with "alone", for
/// how many seconds it was. By itself it says {"is": "hello", ...}, {"is": "line", "id", "text"},
/// {"is": "log", "id"} BYTES,
/// {"is": "exit", "id", "status"}, {"is": "status", "id", "record"}, {"is": "beat"} and, of a
/// request that failed, {"is": "failed", "do", "number", "code", "message"}. It never waits for the
/// lead to read: files go a piece at a time, while it listens and beats.
/// Gives the code of "end"; nothing where its input ended without one.
Result<std::optional<int>> serve_agent(const AgentOptions& options);

}  // namespace motley::run

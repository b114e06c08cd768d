#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/program/program.h"
#include "motley/run/job.h"
#include "motley/trace/trace.h"

namespace motley::run {

/// `motley-worker profile JOB.json`: times every compute instruction of each program in situ, and
/// prints the times as one line.
struct ProfileJob {
  std::vector<std::string> programs;  ///< program files
  std::vector<int> ranks;             ///< by program: the rank that is run, alone
  WorkerDevice device;                ///< kind, threads, local index, processor
  bool whole_steps = false;           ///< time steps at the device's speed, not operators at full
  double seconds_per_program = 0.5;   ///< time to spend on each, at least 2 repeats
  bool linger = false;  ///< afterwards go on working until killed, to be beside others
  static void fields(auto& it, auto& field) {
    field("programs", it.programs)("ranks", it.ranks)("device", it.device);
    field("whole_steps", it.whole_steps)("linger", it.linger);
    field("seconds_per_program", it.seconds_per_program);
  }
  Result<void> check(const std::string& where) const;
};

/// Time of all instructions with one cost key.
struct OpTime {
  std::string key;  ///< program::cost_key
  Seconds median;
  double spread = 0;         ///< median absolute deviation / median
  std::int64_t samples = 0;  ///< measured executions
  Bytes scratch;             ///< memory needed beside the results
  static void fields(auto& it, auto& field) {
    field("key", it.key)("median_s", it.median)("spread", it.spread)("samples", it.samples);
    field("scratch_bytes", it.scratch);
  }
};
/// What `profile` prints on stdout.
struct OpTimes {
  std::vector<OpTime> ops;
  static void fields(auto& it, auto& field) { field("ops", it.ops); }
};

/// Times of the compute instructions of one device of a trace, which ran `program`: per instruction
/// the median over steps; instructions of equal key give the mean of theirs, so that the sum over
/// the program stays. Sorted by key, without scratch.
std::vector<OpTime> time_operators(const program::DeviceProgram& program, const trace::Trace& trace,
                                   int device);

/// What verb `collectives` (which takes a Job without program and data) reports in its event.
struct CollectiveTime {
  std::string op;
  std::string backend;
  int ranks = 0;
  Bytes bytes;
  Seconds median;
  double spread = 0;
  std::int64_t samples = 0;
  static void fields(auto& it, auto& field) {
    field("op", it.op)("backend", it.backend)("ranks", it.ranks)("bytes", it.bytes);
    field("median_s", it.median)("spread", it.spread)("samples", it.samples);
  }
};

/// A rank's compute alone and beside exchanges of all ranks, in the same event.
struct OverlapTime {
  int rank = 0;
  Seconds alone, together;
  Seconds overlap;  ///< of `together`: an exchange was under way
  static void fields(auto& it, auto& field) {
    field("rank", it.rank)("alone_s", it.alone)("together_s", it.together)("overlap_s", it.overlap);
  }
};

/// What the event of verb `collectives` holds.
struct MeasuredGroup {
  std::string backend;  ///< of the group of all ranks
  std::vector<CollectiveTime> collectives;
  std::vector<OverlapTime> overlaps;
  static void fields(auto& it, auto& field) {
    field("collectives", it.collectives)("backend", it.backend)("overlaps", it.overlaps);
  }
};

}  // namespace motley::run

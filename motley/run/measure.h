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

/// `motley-worker profile JOB.json` times every compute instruction of each program in situ.
struct ProfileJob {
  std::vector<std::string> programs;  ///< program files
  std::vector<int> ranks;             ///< by program: the rank to run, alone
  WorkerDevice device;                ///< kind, threads, local index, processor
  bool whole_steps = false;           ///< time steps at device speed, not operators at full
  double seconds_per_program = 0.5;   ///< for each, at least 2 repeats
  bool linger = false;                ///< continue until killed, to keep others company
  static void fields(auto& it, auto& field) {
    field("programs", it.programs)("ranks", it.ranks)("device", it.device);
    field("whole_steps", it.whole_steps)("linger", it.linger);
    field("seconds_per_program", it.seconds_per_program);
  }
  Result<void> check(const std::string& where) const;
};

/// The time of all instructions with one cost key.
struct OpTime {
  std::string key;  ///< program::cost_key
  Seconds median;
  double spread = 0;         ///< median absolute deviation / median
  std::int64_t samples = 0;  ///< measured executions
  Bytes scratch;             ///< memory beside the results
  static void fields(auto& it, auto& field) {
    field("key", it.key)("median_s", it.median)("spread", it.spread)("samples", it.samples);
    field("scratch_bytes", it.scratch);
  }
};
/// The output of `profile` on stdout.
struct OpTimes {
  std::vector<OpTime> ops;
  static void fields(auto& it, auto& field) { field("ops", it.ops); }
};

/// Returns the times of the compute instructions of one device of a trace, which ran `program`.
/// Takes each instruction's median over steps, then the mean over instructions of equal key, so
/// that the sum over the program is preserved. Sorted by key, without scratch.
std::vector<OpTime> time_operators(const program::DeviceProgram& program, const trace::Trace& trace,
                                   int device);

/// A measurement of verb `collectives`, which takes a Job without program and data.
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

/// A rank's compute time alone and beside exchanges of all ranks, in the same event.
struct OverlapTime {
  int rank = 0;
  Seconds alone, together;
  Seconds overlap;  ///< part of `together` with an exchange in flight
  static void fields(auto& it, auto& field) {
    field("rank", it.rank)("alone_s", it.alone)("together_s", it.together)("overlap_s", it.overlap);
  }
};

/// The content of the event of verb `collectives`.
struct MeasuredGroup {
  std::string backend;  ///< of the group of all ranks
  std::vector<CollectiveTime> collectives;
  std::vector<OverlapTime> overlaps;
  static void fields(auto& it, auto& field) {
    field("collectives", it.collectives)("backend", it.backend)("overlaps", it.overlaps);
  }
};

}  // namespace motley::run

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::run {

/// A time, in seconds since the job's first step, when an emulated device is slower by `factor`.
struct Slowness {
  double from = 0, until = 0, factor = 1;
  bool operator==(const Slowness&) const = default;
  static void fields(auto& it, auto& field) {
    field("from", it.from)("until", it.until)("factor", it.factor);
  }
};

/// An injected fault: in this step the process ends, or hangs, at this instruction.
struct Fault {
  std::int64_t step = 0, instruction = 0;
  bool hangs = false;
  bool in_move = false;  ///< within the move (synth/state/move.h) after so many steps
  bool operator==(const Fault&) const = default;
  static void fields(auto& it, auto& field) {
    field("step", it.step)("instruction", it.instruction)("hangs", it.hangs);
    field("in_move", it.in_move);
  }
};

/// The device of one rank and its emulation.
struct WorkerDevice {
  std::string name;       ///< "a:0"
  std::string kind;       ///< "cpu" or "cuda"
  std::string host;       ///< "": this machine
  int local_index = 0;    ///< CUDA ordinal, used without a uuid
  std::string uuid = "";  ///< of a GPU, as its driver prints it; "": unknown
  int threads = 1;
  double speed = 1.0;             ///< emulated share of one core's time
  int processor = -1;             ///< that the worker is pinned to; -1: any
  std::optional<Bytes> memory;    ///< limit beyond which allocations fail
  std::optional<double> rate;     ///< emulated link, bytes per second
  std::optional<double> latency;  ///< emulated link, seconds
  bool tf32 = false;  ///< of a GPU: float32 products may round to TF32's 10 mantissa bits
  std::vector<Slowness> slow = {};  ///< overlapping ones multiply
  std::vector<Fault> faults = {};
  bool operator==(const WorkerDevice&) const = default;

  double speed_at(double seconds) const;

  static void fields(auto& it, auto& field) {
    field("name", it.name)("kind", it.kind)("host", it.host)("local_index", it.local_index);
    field("uuid", it.uuid)("threads", it.threads)("speed", it.speed)("processor", it.processor);
    field.maybe("memory", it.memory).maybe("rate", it.rate).maybe("latency", it.latency);
    field("tf32", it.tf32);
    field.when(!it.slow.empty(), "slow", it.slow).when(!it.faults.empty(), "faults", it.faults);
  }
  Result<void> check(const std::string& where) const;
};

}  // namespace motley::run

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/program/program.h"
#include "motley/run/job.h"
#include "motley/run/recovery.h"

namespace motley::run {

/// A change of program in a running job. Workers prepare it while they train: they join its groups,
/// look up its operators and place its tensors. When all are ready, they switch after the same
/// step. Tensors whole on a device stay; another program moves the rest (synth/state/move.h).
struct Change {
  int number = 0;  ///< from 1; the job's own program is 0
  int after = 0;   ///< number of the program that runs before it
  program::Program program;
  std::vector<WorkerDevice> devices;  ///< the program's devices by rank; a subset of the job's
  std::vector<program::Program> evaluations;
  double lr_factor = 1;                   ///< multiplies all learning rates from this change on
  program::Program move;                  ///< covers the devices of both programs
  std::vector<WorkerDevice> moving = {};  ///< the move's devices, by rank
  /// After a loss: the point from which the stopped processes continue.
  std::optional<Recovery> recovery = {};
  /// Where processes meet after the loss of the coordinator; none: at the same place as before.
  std::optional<StoreAddress> keys = {};
  /// Numbers of the live processes; empty: all. The first is notified when the others are ready.
  std::vector<int> processes = {};
};

/// Returns a program's devices by rank, taken from the job's; skips a device that the job lacks.
std::vector<WorkerDevice> devices_of(const program::Program& program,
                                     const std::vector<WorkerDevice>& known);

/// The part of a change that one worker receives: a line of JSON on its standard input.
struct ChangeOrder {
  int number = 0;
  int after = 0;
  int halt = 0;                ///< not 0: the order is this halt alone
  std::optional<int> follows;  ///< set: the order is this number alone
  /// Set: the order is this alone. Squares of gradients are counted every so many steps.
  std::optional<std::int64_t> counts_every;
  std::optional<Recovery> recovery;
  std::optional<StoreAddress> keys;
  std::vector<int> processes;
  std::vector<WorkerDevice> devices;
  program::Program program;  ///< with the instructions of the worker's own device only
  std::vector<program::Program> evaluations;
  double lr_factor = 1;
  program::Program move;  ///< likewise
  std::vector<WorkerDevice> moving;
};
/// Returns the order for the named device, which the program need not use.
std::string print_order(const Change& change, const std::string& device);
Result<ChangeOrder> parse_order(const std::string& line);

/// Returns the command to stop and report the position (recovery.h). Numbered from 1.
std::string print_halt(int number);
/// Returns the command that sets `every`. Each process applies it from its current step on.
std::string print_counting(std::int64_t every);
/// Returns the message that gives a new process the number of the running program.
std::string print_follow(int number);

}  // namespace motley::run

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

/// A running job goes on by another program. Workers that are told so prepare it beside training:
/// they join its groups, look its operators up and place its tensors; when all have, they go on by
/// it after the same step. What is whole on a device stays where it is; the rest is moved by a
/// program of its own (synth/state/move.h).
struct Change {
  int number = 0;  ///< from 1; the job's own program is 0
  int after = 0;   ///< the number of the program that runs when it begins
  program::Program program;
  std::vector<WorkerDevice> devices;  ///< of the program, by its ranks; some of the job's
  std::vector<program::Program> evaluations;
  double lr_factor = 1;                   ///< of all learning rates, from then on
  program::Program move;                  ///< of the devices of both programs
  std::vector<WorkerDevice> moving = {};  ///< of the move, by its ranks
  /// After a loss: from where its processes, which all have stopped, go on.
  std::optional<Recovery> recovery = {};
  /// Where processes meet from now on, after the loss of the coordinator; none: where they did.
  std::optional<StoreAddress> keys = {};
  /// Numbers in the job of the processes that live; empty: all do. The first of them hears of the
  /// others that they are ready.
  std::vector<int> processes = {};
};

/// Those of a program, by its ranks, of a job's; a device that the job has not is left out.
std::vector<WorkerDevice> devices_of(const program::Program& program,
                                     const std::vector<WorkerDevice>& known);

/// What one worker is told of a change: a line of JSON on its standard input.
struct ChangeOrder {
  int number = 0;
  int after = 0;
  int halt = 0;                ///< not 0: nothing but that
  std::optional<int> follows;  ///< nothing but that
  /// Nothing but that: squares of gradients are counted in every so-many-th step.
  std::optional<std::int64_t> counts_every;
  std::optional<Recovery> recovery;
  std::optional<StoreAddress> keys;
  std::vector<int> processes;
  std::vector<WorkerDevice> devices;
  program::Program program;  ///< with the instructions of the worker's own device
  std::vector<program::Program> evaluations;
  double lr_factor = 1;
  program::Program move;  ///< the same
  std::vector<WorkerDevice> moving;
};
/// For the device of that name, which the program need not use.
std::string print_order(const Change& change, const std::string& device);
Result<ChangeOrder> parse_order(const std::string& line);

/// A command to all processes of a job: they stop where they are and say where that is
/// (recovery.h). Numbered from 1.
std::string print_halt(int number);
/// To all processes, from the step on in which each hears it.
std::string print_counting(std::int64_t every);
/// To one who has just come: the number of the program that runs.
std::string print_follow(int number);

}  // namespace motley::run

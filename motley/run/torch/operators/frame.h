#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <signal.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "motley/data/batch.h"
#include "motley/run/job.h"

namespace motley::run {

/// Wishes are summed over the ranks, by a bucket of any float type: so many ranks may wish to stop
/// while one wishes to change. Both are exact in 16 bits.
inline constexpr int kStopWish = 1, kChangeWish = 32768;

/// What the instructions of a running step share. The compute lane uses all of it; the transfer
/// lane only the values that its instructions name.
struct Frame {
  explicit Frame(at::Device on) : device(on) {}

  at::Device device;
  std::vector<at::Tensor> values;  ///< by buffer id; undefined: not live
  std::vector<c10::IValue> stack;  ///< of the operator being called; empty in between
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  double lr_factor = 1;        ///< of every learning rate, in this step
  bool counts_squares = true;  ///< of gradients, for the report (program/square_count.h)
  const data::Batch* batch = nullptr;
  /// What this rank wants of all after the step: sum of kStop and kChange.
  std::atomic<int> wish = 0;
  at::Tensor loss, stop, gradient_norm;  ///< what motley::report saw
  at::Tensor squares;                    ///< the same, of all gradients
  std::vector<at::Tensor> metrics;       ///< the same
  /// The same: by piece its samples and the squares of its terms of gradients.
  std::vector<std::pair<std::int64_t, at::Tensor>> pieces;
  std::vector<Fault> faults;  ///< of this process

  /// Ends or stops the process where that is to happen.
  void meet_fault(int instruction) const {
    for (const Fault& fault : faults)
      if (fault.step == step && fault.instruction == instruction)
        ::raise(fault.hangs ? SIGSTOP : SIGKILL);
  }
};

/// Runs one instruction. Throws c10::Error or std::exception; the executor catches.
using Kernel = std::function<void(Frame&)>;

}  // namespace motley::run

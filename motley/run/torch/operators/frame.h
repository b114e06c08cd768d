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

/// Wishes are summed over the ranks in a bucket of any float type; fewer than kChangeWish ranks may
/// wish to stop while one wishes to change. Both are exact in 16 bits.
inline constexpr int kStopWish = 1, kChangeWish = 32768;

/// State that the instructions of a running step share. The compute lane uses all of it, the
/// transfer lane only the values that its instructions name.
struct Frame {
  explicit Frame(at::Device on) : device(on) {}

  at::Device device;
  std::vector<at::Tensor> values;  ///< by buffer id; undefined: not live
  std::vector<c10::IValue> stack;  ///< of the current operator call; otherwise empty
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  /// The step to which a running update belongs, and its factor of every learning rate.
  struct Updating {
    std::int64_t step = 0;
    double lr_factor = 1;
  };
  Updating updating;
  /// What of a program runs now: what the last step carried over, and what is the step's own.
  bool runs_carried = false, runs_own = true;
  bool is_left_out(bool is_carried) const { return !(is_carried ? runs_carried : runs_own); }
  bool counts_squares = true;  ///< of gradients, for the report (program/square_count.h)
  const data::Batch* batch = nullptr;
  /// This rank's wishes after the step: a sum of kStopWish and kChangeWish.
  std::atomic<int> wish = 0;
  at::Tensor loss, stop, gradient_norm;  ///< set by motley::report
  at::Tensor squares;                    ///< likewise, of all gradients
  std::vector<at::Tensor> metrics;       ///< likewise
  /// Likewise: by piece, its samples and the squares of its gradients.
  std::vector<std::pair<std::int64_t, at::Tensor>> pieces;
  std::vector<Fault> faults;  ///< of this process

  /// Forgets what motley::report set.
  void forget_report() {
    for (at::Tensor* each : {&loss, &stop, &gradient_norm, &squares}) each->reset();
    metrics.clear();
    pieces.clear();
  }
  /// Kills or stops the process at an injected fault.
  void meet_fault(int instruction) const {
    for (const Fault& fault : faults)
      if (fault.step == step && fault.instruction == instruction)
        ::raise(fault.hangs ? SIGSTOP : SIGKILL);
  }
};

/// Runs one instruction. Throws c10::Error or std::exception, which the executor catches.
using Kernel = std::function<void(Frame&)>;

}  // namespace motley::run

#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/hosts/status.h"
#include "motley/run/torch/exchange/communicator.h"
#include "motley/run/torch/lanes/lane_progress.h"
#include "motley/run/torch/lanes/streams.h"
#include "motley/run/torch/lanes/timeline.h"
#include "motley/run/torch/operators/frame.h"

namespace motley::run {

/// A collective of the transfer lane, prepared.
struct PreparedExchange {
  int id = 0;      ///< of the instruction
  int wait = -1;   ///< last compute instruction that must have finished
  int buffer = 0;  ///< that it sums over the group, in place, or gives
  ExchangeCall call{GroupId()};
  std::string op;         ///< motley::all_reduce, ...
  int result = 0;         ///< buffer that it defines; not of an all-reduce
  program::Buffer about;  ///< the result
  Splits splits;          ///< of real numbers; receives: of an all-to-all only
  std::vector<int> frees;
  std::string place;  ///< "^9 motley::all_reduce (bucket 0)", for messages
};

/// What the lane works on; all outlive it.
struct TransferContext {
  Frame* frame;
  /// Null: all-reduces do nothing, others give what this device has, and zeros for the rest.
  Communicator* communicator;
  StatusRecord* status;  ///< may be null
  Timeline* timeline;
  Streams* streams;  ///< null on devices that work synchronously
  const LaneProgress* compute;
};

/// The thread that runs a device's transfers, in order, one step after another. A program without
/// transfers has no thread.
class TransferLane {
 public:
  TransferLane(std::vector<PreparedExchange> transfers, const TransferContext& context);
  ~TransferLane();

  /// Begins a step. The one before must have ended.
  void start_step();
  /// Until all transfers of the step are done; false: one failed.
  bool finish_step() const;
  /// Until transfer instruction `id` is done; false: it, or one before it, failed.
  bool wait_for(int id) const { return done_.wait_for(id); }
  /// When the last transfer that is done would have been, had nobody been woken late: when its
  /// members had arrived and its own work, later; monotonic clock, 0 if not known.
  std::int64_t ready_ns() const { return ready_ns_.load(std::memory_order_acquire); }
  /// The fault; valid after a wait returned false.
  const Error& error() const { return error_; }

 private:
  void serve();
  Result<void> run_step();
  Result<void> run(const PreparedExchange& transfer);
  void note_ready(std::int64_t work_ns);
  Result<void> sum(const PreparedExchange& transfer) const;
  Result<void> exchange(const PreparedExchange& transfer) const;

  std::vector<PreparedExchange> transfers_;
  TransferContext context_;
  LaneProgress done_;
  std::atomic<std::int64_t> ready_ns_ = 0;
  Error error_;
  std::atomic<int> started_ = 0;  // steps; kEnd: leave
  std::thread thread_;
};

}  // namespace motley::run

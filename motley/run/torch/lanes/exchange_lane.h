#pragma once

#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/hosts/status.h"
#include "motley/run/torch/exchange/communicator.h"
#include "motley/run/torch/lanes/lane_progress.h"
#include "motley/run/torch/lanes/step_progress.h"
#include "motley/run/torch/lanes/streams.h"
#include "motley/run/torch/lanes/timeline.h"
#include "motley/run/torch/operators/frame.h"

namespace motley::run {

/// A collective, a send or a receive, prepared.
struct PreparedExchange {
  int id = 0;                     ///< of the instruction
  std::vector<StrandWait> waits;  ///< one for each strand that it waits for
  int buffer = 0;  ///< that it sums over the group, in place, or gives; not of a receive
  ExchangeCall call{GroupId()};
  int peer = -1;          ///< rank at the other end of a send or receive
  std::string op;         ///< motley::all_reduce, ...
  int result = 0;         ///< buffer that it defines; not of an all-reduce or a send
  program::Buffer about;  ///< the result
  Splits splits;          ///< of real numbers; receives: of an all-to-all only
  std::vector<int> frees;
  std::string place;  ///< "^9 motley::all_reduce (bucket 0)", for messages
};

/// What the lanes of a device work on; all outlive them.
struct ExchangeContext {
  Frame* frame;
  /// Null: all-reduces and sends do nothing, others give what this device has, and zeros for the
  /// rest.
  Communicator* communicator;
  StatusRecord* status;  ///< may be null
  Timeline* timeline;
  Streams* streams;  ///< null on devices that work synchronously
  StepProgress* progress;
  std::vector<double>* took_s = nullptr;  ///< by instruction of the transfer lane; null: not asked
};

/// The thread that runs the transfers of a device, or the sends and receives of one of its strands
/// (program/strands.h): in order, one step after another. Without any there is no thread. A lane
/// that fails closes the communicator, so that no other blocks in it.
class ExchangeLane {
 public:
  ExchangeLane(std::size_t strand, std::vector<PreparedExchange> exchanges,
               const ExchangeContext& context);
  ~ExchangeLane();

  /// Begins a step. The one before must have ended, and StepProgress have been reset.
  void start_step();
  /// Until all exchanges of the step are done; false: one failed (StepProgress::fault).
  bool finish_step() const;

 private:
  void serve();
  Result<void> run_step();
  Result<void> run(const PreparedExchange& exchange);
  Result<void> carry_out(const PreparedExchange& exchange);
  Result<void> sum(const PreparedExchange& exchange) const;
  Result<void> give_parts(const PreparedExchange& exchange) const;
  Result<void> send(const PreparedExchange& exchange);
  Result<void> receive(const PreparedExchange& exchange);
  void define(const PreparedExchange& exchange, at::Tensor made) const;
  void show(int id) const;
  void empty_stream() const;

  const std::size_t strand_;
  std::vector<PreparedExchange> exchanges_;
  ExchangeContext context_;
  std::int64_t arrived_ns_ = 0;  // of the exchange that was carried out last; 0: not known
  LaneProgress started_;         // steps
  int steps_ = 0;                // that start_step began
  std::thread thread_;
};

}  // namespace motley::run

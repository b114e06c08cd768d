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

/// A prepared collective, send or receive.
struct PreparedExchange {
  int id = 0;                     ///< of the instruction
  std::vector<StrandWait> waits;  ///< one for each strand that it waits for
  int buffer = 0;                 ///< input: summed in place, or sent; unused by a receive
  ExchangeCall call{GroupId()};
  int peer = -1;          ///< rank at the other end of a send or receive
  std::string op;         ///< motley::all_reduce, ...
  int result = 0;         ///< buffer that it defines; unused by an all-reduce or a send
  program::Buffer about;  ///< the result
  Splits splits;          ///< in real numbers; receives: for an all-to-all only
  std::vector<int> frees;
  bool is_carried = false;  ///< of the step before
  std::string place;        ///< "^9 motley::all_reduce (bucket 0)", for messages
};

/// What the lanes of a device share; all of it outlives them.
struct ExchangeContext {
  Frame* frame;
  /// Null: all-reduces and sends do nothing; others return this device's data and zeros.
  Communicator* communicator;
  StatusRecord* status;  ///< may be null
  Timeline* timeline;
  Streams* streams;  ///< null on synchronous devices
  StepProgress* progress;
  std::vector<double>* took_s = nullptr;  ///< by instruction of the transfer lane; null: no times
};

/// The thread that runs a device's transfers, or the sends or receives of one strand
/// (program/strands.h), in order, step after step. There is no thread without exchanges. A failing
/// lane closes the communicator, so that no other blocks in it.
class ExchangeLane {
 public:
  ExchangeLane(std::size_t strand, std::vector<PreparedExchange> exchanges,
               const ExchangeContext& context);
  ~ExchangeLane();

  /// Begins a step. The previous step must have ended and StepProgress have been reset.
  void start_step();
  /// Waits until all exchanges of the step are done. False: one failed (StepProgress::fault).
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
  void leave_out(const PreparedExchange& exchange) const;
  void show(int id) const;
  void empty_stream() const;

  const std::size_t strand_;
  std::vector<PreparedExchange> exchanges_;
  ExchangeContext context_;
  std::int64_t arrived_ns_ = 0;  // of the last exchange; 0: unknown
  LaneProgress started_;         // steps
  int steps_ = 0;                // begun by start_step
  std::thread thread_;
};

}  // namespace motley::run

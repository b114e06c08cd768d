#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/exchange_method.h"
#include "motley/base/ids.h"
#include "motley/base/units.h"
#include "motley/graph/rules/strategy.h"
#include "motley/plan/operator_split.h"
#include "motley/plan/ranges.h"

namespace motley::plan {

/// A parameter of which each device keeps (and updates) a part; others are whole on every device.
struct KeptParameter {
  std::string name;
  graph::Form form;  ///< sharded
  /// Where operators want it whole: is each gathered copy for the forward or the backward pass of
  /// one micro-batch only, and the next pass gathers again? Else one is there from the first
  /// operator of the step that wants it to the last.
  bool is_gathered_again = false;
  bool operator==(const KeptParameter&) const = default;
};

/// How exchanges of one kind are carried out: those by this operator, of as many bytes (the whole
/// tensor's; of an all-to-all those of the member that has most) whose largest part has so many
/// elements.
struct ExchangeWay {
  std::string op;  ///< "motley::all_gather"
  Bytes bytes;
  std::int64_t largest = 1;  ///< 1: they have no parts
  ExchangeMethod method = ExchangeMethod::kNative;
  bool operator==(const ExchangeWay&) const = default;
};

/// Operators of a replica on an ordered device list. One device runs all of them. Several share
/// them: each operator is split as `operators` says, and whatever is cut (samples, heads, rows of a
/// table) is cut in proportion to `shares`, to whole numbers (round_shares).
struct Region {
  std::vector<DeviceId> devices;
  std::vector<double> shares;  ///< by device; zero allowed; of one device 1
  /// Of several devices, by operator that the region has, in the order of the graph; of one, empty.
  std::vector<OperatorSplit> operators = {};
  std::vector<KeptParameter> parameters = {};
  /// Of several devices: each kind of exchange once; what is not here is native.
  std::vector<ExchangeWay> exchanges = {};
  /// The operators that it has, ascending; empty: all, as the only region of its replica. Each
  /// operator is in one region of a replica; any may be, next to each other in the graph or not.
  std::vector<OpRange> covers = {};
  /// Micro-batches that may be under way here, from the first operator of the forward pass to the
  /// last of the backward pass; 0: as many as there are regions from here on (1F1B). As many as the
  /// replica has: all forward passes come first (GPipe).
  std::int64_t ahead = 0;
  /// How fast its devices are, each, beside those of other regions; only ratios count. By it and by
  /// what operators have to do the order is found in which micro-batches pass; > 0.
  double speed = 1;
  /// How long what it gets from other regions is on its way, beside the time that it works on a
  /// micro-batch; for the same order; >= 0.
  double lag = 0;
  /// Operators, ascending, of which those of the forward pass are done again in the backward pass,
  /// when it first wants something that they make: until then their results are not kept. The
  /// result is the same.
  std::vector<OpRange> recomputes = {};
  /// Are parts of backward passes that no other region waits for (gradients of weights) done apart,
  /// when there is nothing else to do (zero bubble)? A micro-batch is under way until they are
  /// over.
  bool late_weights = false;
  /// 2: are forward and backward tasks of two micro-batches done together where both can begin,
  /// their operators taking turns where they wait for exchanges? Then `ahead` may be under way
  /// before the first backward task, and one more begins only beside a backward task. Of
  /// several devices, in a plan of stages.
  std::int64_t turns = 1;
  bool operator==(const Region&) const = default;
};

}  // namespace motley::plan

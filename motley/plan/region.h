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

/// A parameter that devices share: each keeps and updates a part. Others are whole on every device.
struct KeptParameter {
  std::string name;
  graph::Form form;  ///< sharded
  /// For operators that need the whole parameter: true if each forward or backward pass of a
  /// micro-batch gathers its own copy; else one copy lives from the first to the last of a step.
  bool is_gathered_again = false;
  bool operator==(const KeptParameter&) const = default;
};

/// The method of one kind of exchange, identified by operator, bytes (of the whole tensor; for an
/// all-to-all of the member with most) and elements of its largest part.
struct ExchangeWay {
  std::string op;  ///< "motley::all_gather"
  Bytes bytes;
  std::int64_t largest = 1;  ///< 1: no parts
  ExchangeMethod method = ExchangeMethod::kNative;
  bool operator==(const ExchangeWay&) const = default;
};

/// Operators of a replica on an ordered device list. A single device runs all of them. Several
/// share them: each operator is split as `operators` says, and what is cut (samples, heads, rows of
/// a table) is cut in proportion to `shares`, to whole numbers (round_shares).
struct Region {
  std::vector<DeviceId> devices;
  std::vector<double> shares;  ///< by device; zero allowed; 1 for a single device
  /// One entry per operator of the region, in graph order; empty for a single device.
  std::vector<OperatorSplit> operators = {};
  std::vector<KeptParameter> parameters = {};
  /// For several devices: each kind of exchange once. Kinds that are missing use the native method.
  std::vector<ExchangeWay> exchanges = {};
  /// The region's operators, ascending, consecutive or not; empty: all, as the only region of its
  /// replica. Each operator is in exactly one region of a replica.
  std::vector<OpRange> covers = {};
  /// Maximum number of micro-batches in flight here, from the first forward operator to the last
  /// backward one. 0: the number of regions from here to the last one (1F1B). Equal to the
  /// replica's micro-batches: all forward passes come first (GPipe).
  std::int64_t ahead = 0;
  /// Speed of each of its devices relative to other regions; only ratios count. Together with the
  /// work of operators it determines the order of micro-batches. > 0.
  double speed = 1;
  /// Delay of what other regions send, relative to its micro-batch time; for this order. >= 0.
  double lag = 0;
  /// Operators, ascending, whose forward pass is recomputed when the backward pass first needs one
  /// of their results, which are not kept until then. The numbers do not change.
  std::vector<OpRange> recomputes = {};
  /// Whether parts of backward passes that no other region waits for (gradients of weights) run
  /// when nothing else can (zero bubble). A micro-batch stays in flight until they end.
  bool late_weights = false;
  /// 2: a forward and a backward task of two micro-batches run together if both can begin; their
  /// operators interleave at exchanges. Then `ahead` micro-batches may be in flight before the
  /// first backward task; one more begins only beside one. Requires several devices and stages.
  std::int64_t turns = 1;
  bool operator==(const Region&) const = default;
};

}  // namespace motley::plan

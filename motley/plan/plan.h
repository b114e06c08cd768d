#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/exchange_method.h"
#include "motley/base/ids.h"
#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cluster/cluster.h"
#include "motley/graph/rules/strategy.h"
#include "motley/plan/operator_split.h"
#include "motley/plan/ranges.h"
#include "motley/plan/recipe.h"

namespace motley::plan {

/// A parameter of which each device keeps (and updates) a part; others are whole on every device.
struct KeptParameter {
  std::string name;
  graph::Form form;  ///< sharded
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
  bool operator==(const Region&) const = default;
};

/// A share of the global batch. Replicas exchange gradients; their samples follow each other in
/// replica order inside each global batch. Its regions pass values on to each other; a device may
/// be in several of them. Replicas may be cut into regions differently.
struct Replica {
  std::int64_t samples = 0;
  std::vector<Region> regions;
  /// Of each step, one after the other; gradients are added up over them and exchanged once. Where
  /// they do not divide the samples, the first have one more (find_stretches).
  std::int64_t micro_batches = 1;
  bool operator==(const Replica&) const = default;
};

/// Statistics of batch normalisation: of the global batch (as one device computes), or of each
/// replica's own samples.
enum class BatchNormMode { kGlobal, kLocal };
std::string_view batch_norm_name(BatchNormMode mode);

/// What they are of where a step has several micro-batches: of all its samples, as if there were
/// one; or of each micro-batch, as in PyTorch's gradient accumulation. Then buffers (running
/// statistics) are updated by one micro-batch after the other.
enum class BatchNormSpan { kStep, kMicroBatch };
std::string_view batch_norm_span_name(BatchNormSpan span);

/// How what several devices hold is kept equal: each device updates its copy natively, by its
/// quickest kernels and from what it computed itself, which gives like devices the same bits; or
/// portably, by operations that all devices round alike, and what has none of them is one device's.
enum class Updates { kNative, kPortable };
std::string_view updates_name(Updates updates);
Result<Updates> parse_updates(std::string_view name);

/// The decision as data. What each field means for the program: docs/formats/plan.md.
struct Plan {
  std::string model_hash, cluster_hash;
  std::int64_t global_batch = 0;
  std::vector<Replica> replicas;  ///< each with samples > 0; devices without a replica are idle
  Recipe recipe;
  BatchNormMode batch_norm = BatchNormMode::kGlobal;
  BatchNormSpan batch_norm_span = BatchNormSpan::kStep;
  /// Gradients are exchanged in buckets of about this size, in the order they become ready.
  Bytes bucket_bytes{4 << 20};
  Updates updates = Updates::kNative;
  bool tf32 = false;  ///< GPUs may round the factors of float32 products to TF32
  bool operator==(const Plan&) const = default;
};

/// The micro-batches of a replica whose samples begin at `first`: as equal as can be, the larger
/// ones first.
std::vector<Stretch> find_stretches(const Replica& replica, std::int64_t first);

/// Is it more than samples spread over devices, or one region that all devices share: has a replica
/// several regions, or one that several devices share beside other replicas, or micro-batches that
/// are not as many or as large as those of all others, or operators done again that others do once?
bool has_stages(const Plan& plan);

/// One rank of a plan.
struct Member {
  DeviceId device;
  std::int64_t samples = 0;  ///< of its replica or, in the one region that all devices share, its
                             ///< part of them, maybe 0
  bool operator==(const Member&) const = default;
};
/// All ranks of a verified plan, in order: devices as they come in replicas and their regions.
std::vector<Member> members(const Plan& plan);

/// The plan of as many of its micro-batches alone.
Plan in_micro_batches(Plan plan, std::int64_t micro_batches);

/// Do several devices share operators of the graph, beside the samples?
bool splits_operators(const Plan& plan);

/// Plan of data parallelism: devices[i] gets samples[i] of every global batch; entries of zero
/// samples are left out.
std::vector<Replica> make_replicas(const std::vector<DeviceId>& devices,
                                   const std::vector<std::int64_t>& samples);

/// JSON text of schema "motley.plan/1". Devices are written by name.
std::string print_plan(const Plan& plan, const cluster::Cluster& cluster);
/// A device that the cluster does not have is a *stale* error.
Result<Plan> parse_plan(std::string_view text, const std::string& name,
                        const cluster::Cluster& cluster);

/// All violations in one message: samples sum to the global batch, no device in two replicas,
/// devices exist, regions have usable shares and no operator twice, hashes equal those of model and
/// cluster (stale). Whether the regions have all operators of the model, whether these can be split
/// so, and memory, are verified when the plan is lowered.
Result<void> verify_plan(const Plan& plan, const std::string& model_hash,
                         const cluster::Cluster& cluster);

}  // namespace motley::plan

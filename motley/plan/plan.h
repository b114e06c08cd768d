#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/ids.h"
#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cluster/cluster.h"
#include "motley/plan/ranges.h"
#include "motley/plan/recipe.h"
#include "motley/plan/region.h"

namespace motley::plan {

/// A share of the global batch. Replicas exchange gradients; their samples follow each other in
/// replica order inside each global batch. Its regions pass values on to each other; a device may
/// be in several of them. Replicas may be cut into regions differently.
struct Replica {
  std::int64_t samples = 0;
  std::vector<Region> regions;
  /// Of each step, one after the other; gradients are added up over them and exchanged once. Where
  /// they do not divide the samples, the first have one more (find_stretches).
  std::int64_t micro_batches = 1;
  /// Of these, how many are under way at a time, whose operators take turns where they wait for
  /// exchanges. More than 1: of the only replica, whose only region several devices share.
  std::int64_t turns = 1;
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
/// fastest kernels and from what it computed itself, which gives like devices the same bits; or
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
  /// Of parameters that several regions hold, how the states (of the optimizer, masters, averages)
  /// are shared over the devices that hold them: each keeps and updates rows in proportion. A
  /// device that is not here has none, a parameter none of whose holders is here all states
  /// everywhere. Empty: so have all.
  std::map<DeviceId, double> state_shares = {};
  bool tf32 = false;  ///< GPUs may round the factors of float32 products to TF32
  bool operator==(const Plan&) const = default;
};

/// The micro-batches of a replica whose samples begin at `first`: as equal as can be, the larger
/// ones first.
std::vector<Stretch> find_stretches(const Replica& replica, std::int64_t first);

/// Is it more than samples spread over devices, or one region that all devices share: has a replica
/// several regions, or one that several devices share beside other replicas, or micro-batches that
/// are not as many or as large as those of all others, or operators done again that others do once,
/// or are states shared over replicas?
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

/// Of a step, where batch normalisation takes the statistics of each, so that another plan must
/// have as many to give the same; else 1.
std::int64_t shown_micro_batches(const Plan& plan);

/// The plan's step with the batch split as make_replicas splits it, and nothing else.
Plan split_instead(Plan plan, const std::vector<DeviceId>& devices,
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

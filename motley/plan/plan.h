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
#include "motley/plan/owners.h"
#include "motley/plan/ranges.h"
#include "motley/plan/recipe.h"
#include "motley/plan/region.h"

namespace motley::plan {

/// A share of the global batch. Replicas exchange gradients. Their samples are consecutive ranges
/// of each global batch, in replica order. A replica's regions pass values to each other; a device
/// may be in several of them. Each replica may have different regions.
struct Replica {
  std::int64_t samples = 0;
  std::vector<Region> regions;
  /// Micro-batches per step, in order; gradients accumulate over them and are exchanged once. If
  /// they do not divide the samples, the first ones have one more (find_stretches).
  std::int64_t micro_batches = 1;
  /// Micro-batches in flight whose operators interleave: one computes while another waits for an
  /// exchange. More than 1 requires a single replica with a single region of several devices.
  std::int64_t turns = 1;
  bool operator==(const Replica&) const = default;
};

/// Batch normalisation uses statistics of the global batch, as one device does, or of each replica.
enum class BatchNormMode { kGlobal, kLocal };
std::string_view batch_norm_name(BatchNormMode mode);

/// Range of the statistics in a step of several micro-batches: all samples of the step, as if it
/// had one micro-batch; or each micro-batch, as in PyTorch's gradient accumulation. In the second
/// case the buffers (running statistics) are updated once per micro-batch, in order.
enum class BatchNormSpan { kStep, kMicroBatch };
std::string_view batch_norm_span_name(BatchNormSpan span);

/// How devices keep copies equal. kNative: each device updates its copy with its fastest kernels
/// from what it computed itself; identical devices get identical bits. kPortable: devices use
/// operations that all of them round alike; one device runs what has no such operations.
enum class Updates { kNative, kPortable };
std::string_view updates_name(Updates updates);
Result<Updates> parse_updates(std::string_view name);

/// Which of a step's exchanges of gradients, or of owners' new rows, end in the next step.
struct Carried {
  /// So many in a row; of a fraction's exchange, the first of them, that share of its elements.
  double exchanges = 0;
  std::int64_t skipped = 0;  ///< behind these, which end in their step
  bool operator==(const Carried&) const = default;
};

/// The decision as data. docs/formats/plan.md says what each field means for the program.
struct Plan {
  std::string model_hash, cluster_hash;
  std::int64_t global_batch = 0;
  std::vector<Replica> replicas;  ///< each with samples > 0; devices without a replica are idle
  Recipe recipe;
  BatchNormMode batch_norm = BatchNormMode::kGlobal;
  BatchNormSpan batch_norm_span = BatchNormSpan::kStep;
  /// Gradients are exchanged in buckets of about this size, in order of readiness.
  Bytes bucket_bytes{4 << 20};
  Updates updates = Updates::kNative;
  std::vector<Owners> owners = {};  ///< of parameters that several regions hold; none: all-reduced
  Carried carried;
  bool tf32 = false;  ///< GPUs may round the factors of float32 products to TF32
  bool operator==(const Plan&) const = default;
};

/// Returns a replica's micro-batches from sample `first` on: as equal as possible, larger first.
std::vector<Stretch> find_stretches(const Replica& replica, std::int64_t first);

/// Returns whether the plan is more than data parallelism or one region shared by all devices: a
/// replica with several regions, or with a shared region beside other replicas; different numbers
/// or sizes of micro-batches, or recomputed operators, among replicas; or owners.
bool has_stages(const Plan& plan);

/// One rank of a plan.
struct Member {
  DeviceId device;
  /// Of its replica; in a region that all devices share, its part of them, maybe 0.
  std::int64_t samples = 0;
  bool operator==(const Member&) const = default;
};
/// Returns all ranks of a verified plan, in the order in which replicas and regions list devices.
std::vector<Member> members(const Plan& plan);

/// Returns the plan for a step of only `micro_batches` of its micro-batches.
Plan in_micro_batches(Plan plan, std::int64_t micro_batches);

/// Returns whether several devices share operators of the graph, not only the samples.
bool splits_operators(const Plan& plan);

/// Returns one replica per device, with samples[i] of every global batch; none for zero samples.
std::vector<Replica> make_replicas(const std::vector<DeviceId>& devices,
                                   const std::vector<std::int64_t>& samples);

/// Returns the number of micro-batches of a step if batch normalisation takes statistics of each,
/// so that another plan needs the same number for the same result; else 1.
std::int64_t shown_micro_batches(const Plan& plan);

/// Returns the plan with only its batch split (make_replicas), and its shown_micro_batches.
Plan split_instead(Plan plan, const std::vector<DeviceId>& devices,
                   const std::vector<std::int64_t>& samples);

/// Returns JSON text of schema "motley.plan/1". Devices are written by name.
std::string print_plan(const Plan& plan, const cluster::Cluster& cluster);
/// Parses it. A device that the cluster does not have is a *stale* error.
Result<Plan> parse_plan(std::string_view text, const std::string& name,
                        const cluster::Cluster& cluster);

/// Reports all violations in one message: samples sum to the global batch, no device is in two
/// replicas, devices exist, regions have usable shares and no operator twice, hashes equal those of
/// model and cluster (else stale). Lowering verifies splits, memory, and that regions cover the
/// model.
Result<void> verify_plan(const Plan& plan, const std::string& model_hash,
                         const cluster::Cluster& cluster);

}  // namespace motley::plan

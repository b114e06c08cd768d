#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/cost/cost_model.h"
#include "motley/cost/links/collectives.h"
#include "motley/cost/links/network.h"
#include "motley/cost/measured/profile_store.h"
#include "motley/cost/operators/pace.h"
#include "motley/cost/operators/time_source.h"

namespace motley::cost {

/// Time of each instruction of one kind of device program as a function of the local batch:
/// measured at reference batches, in between linear and nondecreasing (isotonic, by pooling
/// adjacent violators), below the smallest constant, beyond the largest with the last segment's
/// slope, but at most in proportion to the batch (from one batch alone: in proportion).
/// Instructions of the transfer lane take 0. Scratch memory likewise, but not made nondecreasing.
///
/// Example: measured 2 ms at 4 and 3 ms at 8: 2 ms at 1, 2.5 ms at 6, 4 ms at 12.
class InstructionTimes {
 public:
  /// `references`: the same lowering at each measured batch, one or more, in any order (equal
  /// instruction sequences and distinct batches, checked). What the source cannot say is a usage
  /// error that names its key, the device and the `motley profile` to run.
  static Result<InstructionTimes> build(const std::vector<program::DeviceProgram>& references,
                                        const TimeSource& source, const DeviceKey& device);
  /// Seconds of instruction i at full speed for a local batch. O(log batches).
  Seconds at(std::size_t instruction, double samples) const;
  /// Memory that each instruction needs beside its results, rounded up.
  std::vector<Bytes> scratch_bytes(std::int64_t samples) const;
  /// The same of one instruction.
  Bytes scratch_at(std::size_t instruction, double samples) const;
  std::size_t size() const { return seconds_.size(); }
  /// Is the program a lowering of the kind that the references are: the same operators in order?
  bool fits(const program::DeviceProgram& program) const;
  /// All instructions at a local batch.
  Seconds total(double samples) const;
  /// Spread of an instruction, mean over the largest batch's, weighted by time.
  double spread() const { return spread_; }
  /// The same on a device of that pace, at the batches' whole steps.
  InstructionTimes slowed(const Pace& pace) const;
  const std::vector<double>& batches() const { return batches_; }

 private:
  double between(const std::vector<double>& values, double samples) const;

  std::uint64_t operators_ = 0;               // hash of their names in order
  std::vector<double> batches_;               // increasing
  std::vector<std::vector<double>> seconds_;  // [instruction][batch]
  std::vector<std::vector<double>> scratch_;  // [instruction][batch]; bytes
  double spread_ = 0;
};

/// latency + bytes / bandwidth of a collective, both >= 0, fitted to measurements by relative least
/// squares (of (fit - measured) / measured) for each operator, backend, route and number of ranks,
/// measured at two sizes or more. For ranks in between, both numbers are interpolated; beyond is an
/// error that names the key. One rank takes 0. An all-gather, a reduce-scatter or an all-to-all
/// that was not measured among these ranks takes the latency of an all-reduce and half of its time
/// a byte: by a ring it moves (n-1)/n of its bytes, an all-reduce 2 (n-1)/n. What was measured only
/// as native takes the same of any method.
class CollectiveTimes {
 public:
  static Result<CollectiveTimes> build(const ProfileStore& store);
  Result<Seconds> at(std::string_view op, const std::string& route, int ranks, Bytes bytes,
                     std::string_view backend = "gloo") const;
  struct Line {
    double latency = 0, seconds_per_byte = 0;
  };
  /// The line itself; of what was not measured, half an all-reduce.
  Result<Line> line(std::string_view op, const std::string& route, int ranks,
                    std::string_view backend = "gloo") const;

 private:
  Result<Line> find_measured(std::string_view op, const std::string& route, int ranks,
                             std::string_view backend) const;
  std::map<std::string, std::map<int, Line>> fits_;  // "op|backend|route" -> ranks -> fit
};

/// "local" or "1Gbps+100us": how a group is joined, as the store names it.
std::string route_key(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices);

/// "nccl" for a group of CUDA devices and planning kinds only, else "gloo", which is shared memory
/// within a machine; "gloo only" if the cluster's transport forbids that.
std::string backend_key(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices);

/// Are the devices on two nodes or more, one of which has several of them?
bool has_levels(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices);

/// What a message costs its ends where nobody measured it, of the order that the libraries show on
/// current hardware: 10 us (NCCL), 50 us (Gloo).
Transport usual_transport(Backend backend);

/// Profile key of a device: "cpu", or the GPU's model if known, else its kind; threads; the minor
/// version of PyTorch ("2.15" for "2.15.0+cpu").
DeviceKey device_key(const cluster::Device& device, const std::string& torch_version);

/// CPU devices other than this one on its host, which compute at the same time in a shared step:
/// they take part of the host's memory bandwidth and caches. None for other kinds.
std::vector<DeviceId> neighbours(const cluster::Cluster& cluster, DeviceId device);

/// Profile key of an emulated device among its neighbours: "cpu at 0.2 beside 0.4 0.8".
DeviceKey emulated_key(const cluster::Cluster& cluster, DeviceId device,
                       const std::string& torch_version);

/// True when its host emulates devices and it is not alone there: what sharing processors costs is
/// measured by whole steps.
bool has_pace(const cluster::Cluster& cluster, DeviceId device);

/// Memory that PyTorch holds on a device beside `tensors` in use at the peak: 0 on CPUs, whose
/// limits are on tensors. On GPUs 512 MiB, about what a CUDA context with cuBLAS takes (300 to 600
/// MiB by kind and version; not measured here), and 7.1 % of the tensors, which its caching
/// allocator reserves beyond them by rounding and fragmentation (the median over Aceso's runs on
/// GH200 that Sailor's authors published).
Bytes framework_bytes(const cluster::Device& device, Bytes tensors);

/// Both together.
Bytes with_framework(const cluster::Device& device, Bytes tensors);

/// About the part of a global batch that a device of a host gets: by its speed.
std::int64_t usual_samples(const cluster::Cluster& cluster, DeviceId device,
                           std::int64_t global_batch);

/// Profile key of a device in a step that it shares: as device_key, with "cpu beside 2" where it
/// has two neighbours.
DeviceKey shared_key(const cluster::Cluster& cluster, DeviceId device,
                     const std::string& torch_version);

/// Cost model over measurements: instruction times of the device's key at the program's samples,
/// divided by the device's emulated speed; collectives by the group's route, as measured. What was
/// measured over links is a transfer of the measured latency and a flow around the ring, at most
/// as fast as measured: alone it takes what was measured, also where the cluster file says that a
/// link is slower, and beside others it shares links. Routes without links take fixed times. A
/// group with a planning kind, which nobody can measure, exchanges over the cluster's links by the
/// cheapest algorithm of its backend (collectives.h), and shares them with what else is under way;
/// with usual_transport.
class ProfileCost : public CostModel {
 public:
  /// Times of a device's program in a group and alone by tables, either of which may be null: the
  /// program's operators tell which one fits. Other programs of the model by `source`, which says
  /// of an instruction that a table has, too, what the table says. All at full speed but where
  /// `is_paced`.
  struct DeviceTimes {
    std::shared_ptr<const InstructionTimes> alone, shared;
    Pace pace;                                    ///< by the compute of a whole program
    bool is_paced = false;                        ///< the tables have the pace in them already
    std::vector<InterferenceEntry> interference;  ///< of the device; none: it has none
    std::shared_ptr<const TimeSource> source;     ///< null: there are only the tables' programs
    /// Of the tables, beside what is in them.
    double table_speed() const { return is_paced ? 1.0 : pace.at(Seconds(1)); }
  };
  /// `devices`: by name.
  ProfileCost(const cluster::Cluster& cluster, std::map<std::string, DeviceTimes> devices,
              CollectiveTimes collectives);
  Result<std::vector<Seconds>> compute_times(const program::DeviceProgram& program) const override;
  Result<Seconds> collective_time(std::string_view op, Bytes bytes,
                                  const std::vector<std::string>& devices) const override;
  Result<std::vector<Bytes>> scratch_bytes(const program::DeviceProgram& program) const override;
  Result<Transfer> transfer(std::string_view op, Bytes bytes,
                            const std::vector<std::string>& devices) const override;
  /// As measured over the group's route among as many ranks, or the next number of them; 0 where
  /// nothing was.
  double interference(const std::string& device,
                      const std::vector<std::string>& group) const override;
  std::vector<double> link_capacities() const override;
  /// Of every instruction of one device's program, in order: compute_times and scratch_bytes.
  struct Times {
    std::vector<Seconds> seconds;
    std::vector<Bytes> scratch;
  };
  Result<Times> times(const program::DeviceProgram& program) const;
  /// What collective_time is the least of, at any bytes: a line for each algorithm that the group
  /// has for the collective.
  Result<std::vector<CollectiveTimes::Line>> collective_lines(
      std::string_view op, const std::vector<std::string>& devices) const;

 private:
  Result<const DeviceTimes*> times_of(const program::DeviceProgram& program) const;
  Result<Times> other_times(const DeviceTimes& times, const program::DeviceProgram& program) const;
  Result<std::vector<DeviceId>> find_devices(const std::vector<std::string>& names) const;
  /// The devices of a collective; an error where it has hosts for levels and they do not.
  Result<std::vector<DeviceId>> find_group(std::string_view op,
                                           const std::vector<std::string>& names) const;
  bool is_planned_only(const std::vector<DeviceId>& group) const;
  Result<Transfer> measured_transfer(std::string_view op, Bytes bytes,
                                     const std::vector<DeviceId>& group) const;
  Transfer planned_transfer(std::string_view op, Bytes bytes,
                            const std::vector<DeviceId>& group) const;
  std::vector<Algorithm> planned_algorithms(std::string_view op,
                                            const std::vector<DeviceId>& group) const;

  cluster::Cluster cluster_;
  Network network_;
  std::map<std::string, DeviceTimes> devices_;
  CollectiveTimes collectives_;
};

}  // namespace motley::cost

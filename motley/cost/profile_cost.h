#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/cost/cost_model.h"
#include "motley/cost/profile_store.h"

namespace motley::cost {

/// Time of each instruction of one kind of device program as a function of the local batch:
/// measured at reference batches, in between linear and nondecreasing (isotonic), beyond the
/// largest with the last slope, below the smallest constant.
class InstructionTimes {
 public:
  /// `references`: the same lowering at each measured batch (equal instruction sequences, checked).
  /// A missing measurement is a usage error that names its key and the `motley profile` to run.
  static Result<InstructionTimes> build(const std::vector<program::DeviceProgram>& references,
                                        const ProfileStore& store, const DeviceKey& device);
  /// Seconds of instruction i at full speed for a local batch.
  Seconds at(std::size_t instruction, double samples) const;
  std::size_t size() const { return seconds_.size(); }
  const std::vector<double>& batches() const { return batches_; }

 private:
  std::vector<double> batches_;               // increasing
  std::vector<std::vector<double>> seconds_;  // [instruction][batch]
};

/// latency + bytes / bandwidth of a collective, fitted to measurements by relative least squares
/// for each (operator, route, ranks); ranks in between are interpolated, beyond are an error by
/// key.
class CollectiveTimes {
 public:
  static Result<CollectiveTimes> build(const ProfileStore& store);
  Result<Seconds> at(std::string_view op, const std::string& route, int ranks, Bytes bytes) const;

 private:
  struct Fit {
    double latency, seconds_per_byte;
  };
  std::map<std::string, std::map<int, Fit>> fits_;  // "op|route" -> ranks -> fit
};

/// "local" or "1Gbps+100us": how a group is joined, as the store names it.
std::string route_key(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices);

/// Profile key of a device ("cpu" or the GPU's kind, threads, torch version).
DeviceKey device_key(const cluster::Device& device, const std::string& torch_version);

/// Cost model over measurements: instruction times of the device's key at the program's samples,
/// divided by the device's emulated speed; collectives by the group's route.
class ProfileCost : public CostModel {
 public:
  struct DeviceTimes {
    std::shared_ptr<const InstructionTimes> alone, shared;  // which fits a program: its length
    double speed = 1.0;
  };
  ProfileCost(const cluster::Cluster& cluster, std::map<std::string, DeviceTimes> devices,
              CollectiveTimes collectives);
  Result<std::vector<Seconds>> compute_times(const program::DeviceProgram& program) const override;
  Result<Seconds> collective_time(std::string_view op, Bytes bytes,
                                  const std::vector<std::string>& devices) const override;

 private:
  cluster::Cluster cluster_;
  std::map<std::string, DeviceTimes> devices_;
  CollectiveTimes collectives_;
};

}  // namespace motley::cost

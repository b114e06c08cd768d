#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/cost/measured/profile_store.h"
#include "motley/cost/profile_cost.h"
#include "motley/cost/trust/experience.h"
#include "motley/graph/model_file.h"
#include "motley/search/price/equal_programs.h"
#include "motley/simulate/conditions.h"
#include "motley/synth/lower.h"

namespace motley::search {

/// Measured times of one model on the devices of one cluster.
struct Costs {
  std::map<std::string, cost::ProfileCost::DeviceTimes> devices;  ///< by name
  cost::CollectiveTimes collectives;
  /// Times of operators by what they do, for searches that price ways of an operator one by one,
  /// before there is a program; by name.
  struct ByWork {
    std::shared_ptr<const cost::WorkTimes> times;
    double speed = 1.0;  ///< the pace of a step that has about the device's part for it
    /// Of bounds: no operator takes less in a program with exchanges, and in one without (the two
    /// settings of cost::ProfileCost::DeviceTimes). Null: `times`.
    std::shared_ptr<const cost::WorkTimes> least_shared = nullptr, least_alone = nullptr;
    double most_speed = 1.0;
  };
  std::map<std::string, ByWork> by_work;
  /// Tables of devices in a group without their pace, by name.
  std::map<std::string, std::shared_ptr<const cost::InstructionTimes>> full_speed;
  /// How much emulated devices' steps and instructions were seen to vary, by name.
  std::map<std::string, simulate::Jitter> jitter;
  std::vector<cost::PredictionEntry> earlier;    ///< what runs measured beside their predictions
  std::map<std::string, cost::Grounds> grounds;  ///< of the devices' times, by name
  /// What nobody measured of devices that are here and is modelled in its place, for people.
  std::vector<std::string> modelled;
  std::shared_ptr<EqualPrograms> programs;  ///< of the model; not null

  /// The cost model that the simulator asks.
  cost::ProfileCost model(const cluster::Cluster& cluster) const {
    return {cluster, devices, collectives};
  }
};

struct CostOptions {
  synth::LowerOptions lowering;
  std::string torch;              ///< PyTorch version of the measurements
  std::int64_t global_batch = 1;  ///< what is to be planned
  std::vector<DeviceId> devices;  ///< those that a plan may use
  bool may_model = false;         ///< what was never measured gets the time of a model
  /// Of the model, where others lower it, too; null: the costs' own.
  std::shared_ptr<EqualPrograms> programs;
};

/// What is profiled: a model and how it is lowered, as both say which operators there are.
std::string profile_subject(const std::string& model_hash, const synth::LowerOptions& lowering);

/// Reads the tables from the store: for each distinct device key the model is lowered at every
/// profiled batch, alone and as one of two. Devices of equal key share their tables. Where the
/// model was not profiled and `may_model` is set, operators that were measured with another model
/// have their measured times and the others those of cost::OperatorModel, at every batch of
/// profile_batches; an emulated device then has the pace of other models, else its nominal speed,
/// and among neighbours as many as nobody measured it with the times among the nearest number;
/// exchanges among other numbers of ranks than were measured take what a ring among these would
/// (CollectiveTimes::reach), those over links of which nothing was what the links say, and those
/// within a machine as long as by the fastest way that was.
/// Planning kinds, which nobody has, have the times of cost::CarriedTimes from the nearest kind on
/// which the model was profiled up to the batch wanted, by this PyTorch; what was not measured
/// there, or all if there is no such kind, has those of cost::KindTimes. Usage errors when a device
/// was never profiled with this model, or only up to a smaller batch than it may get, naming the
/// key and the command to run; with `may_model`, when it was never profiled with any.
Result<Costs> load_costs(const graph::Model& model, const cluster::Cluster& cluster,
                         const cost::ProfileStore& store, const CostOptions& options);

}  // namespace motley::search

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
  /// Times of operators by their work, for searches that price single ways of an operator before
  /// there is a program; by device name.
  struct ByWork {
    std::shared_ptr<const cost::WorkTimes> times;
    double speed = 1.0;  ///< the pace in a step with about the device's part
    /// Lower bounds of operators' times in programs with and without exchanges (the two settings of
    /// cost::ProfileCost::DeviceTimes). Null: `times`.
    std::shared_ptr<const cost::WorkTimes> least_shared = nullptr, least_alone = nullptr;
    double most_speed = 1.0;
  };
  std::map<std::string, ByWork> by_work;
  /// Tables of devices in a group without their pace, by name.
  std::map<std::string, std::shared_ptr<const cost::InstructionTimes>> full_speed;
  /// Measured variation of emulated devices' steps and instructions, by name.
  std::map<std::string, simulate::Jitter> jitter;
  std::vector<cost::PredictionEntry> earlier;    ///< measurements of earlier runs with predictions
  std::map<std::string, cost::Grounds> grounds;  ///< of the devices' times, by name
  /// Notes for users on modelled values of present devices that were not measured.
  std::vector<std::string> modelled;
  std::shared_ptr<EqualPrograms> programs;  ///< of the model; not null

  std::unique_ptr<const cost::CostModel> model(const cluster::Cluster& cluster) const {
    return std::make_unique<const cost::ProfileCost>(cluster, devices, collectives);
  }
};

struct CostOptions {
  synth::LowerOptions lowering;
  std::string torch;              ///< PyTorch version of the measurements
  std::int64_t global_batch = 1;  ///< of the plan
  std::vector<DeviceId> devices;  ///< that a plan may use
  bool may_model = false;         ///< whether models may replace missing measurements
  /// Programs of the model, if shared with other callers; null: own.
  std::shared_ptr<EqualPrograms> programs;
};

/// Returns the profile's subject: a model and its lowering, which together determine the operators.
std::string profile_subject(const std::string& model_hash, const synth::LowerOptions& lowering);

/// Loads the tables from the store. For each distinct device key the model is lowered at every
/// profiled batch, alone and as one of two. Devices of equal key share tables. If the model was not
/// profiled and `may_model` is set:
///  - operators measured with another model keep those times, others get those of
///    cost::OperatorModel, at every batch of profile_batches;
///  - an emulated device has the pace of other models or else its nominal speed, and among an
///    unmeasured number of neighbours the times among the nearest measured number;
///  - exchanges among an unmeasured number of ranks take what a ring would
///    (CollectiveTimes::reach), over unmeasured links what the links' figures give, and within a
///    machine what the fastest measured route takes.
/// Planning kinds have the times of cost::CarriedTimes from the nearest kind on which the model was
/// profiled up to the wanted batch, with this PyTorch, and those of cost::KindTimes for what was
/// not measured there or if there is no such kind. Usage errors if a device was never profiled with
/// this model (with `may_model`: with any model), or only up to a smaller batch than it may get;
/// they name the key and the command to run.
Result<Costs> load_costs(const graph::Model& model, const cluster::Cluster& cluster,
                         const cost::ProfileStore& store, const CostOptions& options);

}  // namespace motley::search

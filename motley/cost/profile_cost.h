#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/cost/collective_times.h"
#include "motley/cost/cost_model.h"
#include "motley/cost/device_keys.h"
#include "motley/cost/instruction_times.h"
#include "motley/cost/links/collectives.h"
#include "motley/cost/links/least_all_reduce.h"
#include "motley/cost/links/network.h"
#include "motley/cost/operators/pace.h"
#include "motley/cost/operators/time_source.h"

namespace motley::cost {

/// Returns whether the devices' links are those of several hosts, or planned. Links of one present
/// host are emulated: they delay each exchange by itself, by the slowest link of all.
bool have_own_links(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices);

/// Cost model over measurements. Instructions: times of the device, alone or in a group like the
/// program, at the program's samples, divided by the device's emulated speed. Collectives: as
/// measured for the group's route. A measurement over links becomes a transfer of the measured
/// latency and a flow around the ring, at most as fast as measured: alone it takes the measured
/// time, even if the cluster file states a slower link, and beside others it shares links. Between
/// hosts uneven parts take what even ones take that load the fullest link as much. Routes
/// without links take fixed times. A group with a planning kind, which cannot be measured,
/// exchanges over the cluster's links by its backend's cheapest algorithm (collectives.h) with
/// usual_transport, and shares the links with other traffic. So does a send between two devices if
/// neither a send nor an all-reduce of two was measured on their route.
class ProfileCost : public CostModel {
 public:
  /// Instruction times in one setting, at full speed except `is_paced` tables. Parts may be null.
  struct SettingTimes {
    std::shared_ptr<const InstructionTimes> table;  ///< for the model split only by samples
    /// For other programs of the model. It agrees with the table on shared instructions.
    std::shared_ptr<const TimeSource> source = nullptr;
    /// Only measurements: instructions without an answer here are worth measuring.
    std::shared_ptr<const TimeSource> measured = nullptr;
    bool operator==(const SettingTimes&) const = default;  // the same objects
  };
  struct DeviceTimes {
    /// Without and with exchanges: two settings, because neighbours work at the same time.
    SettingTimes alone, shared;
    Pace pace;                                    ///< by the compute of a whole program
    bool is_paced = false;                        ///< the tables include the pace
    std::vector<InterferenceEntry> interference;  ///< empty: none
    Seconds pause;  ///< added to an instruction that waits for another device
    std::optional<double> most_alone = {};  ///< upper limit of the pace of a device alone
    /// Returns the setting that prices all instructions of a program.
    const SettingTimes& of(const program::DeviceProgram& program) const {
      return program::is_in_group(program) ? shared : alone;
    }
    /// Returns the speed to apply to the tables.
    double table_speed() const { return is_paced ? 1.0 : pace.at(Seconds(1)); }
    /// Returns whether a program takes the same time on both.
    bool is_same(const DeviceTimes& other) const {
      return alone == other.alone && shared == other.shared && pace == other.pace &&
             most_alone == other.most_alone && pause == other.pause && is_paced == other.is_paced;
    }
  };
  /// `devices`: by name.
  ProfileCost(const cluster::Cluster& cluster, std::map<std::string, DeviceTimes> devices,
              CollectiveTimes collectives);
  Result<Times> times(const program::DeviceProgram& program) const override;
  /// Prices equal programs on devices with the same tables once.
  Result<std::vector<Times>> all_times(const program::Program& program) const override;
  Result<Seconds> collective_time(std::string_view op, Bytes bytes,
                                  const std::vector<std::string>& devices) const override;
  Result<Transfer> transfer(std::string_view op, const ExchangeSize& size,
                            const std::vector<std::string>& devices) const override;
  /// Returns the measurement on the group's route for the nearest number of ranks; 0 if none.
  double interference(const std::string& device,
                      const std::vector<std::string>& group) const override;
  std::vector<double> link_capacities() const override;
  /// Returns the measured curve, or one per algorithm.
  Result<std::vector<CollectiveCurve>> collective_curves(
      std::string_view op, const std::vector<std::string>& devices) const override;
  Result<std::vector<CollectiveCurve>> collective_curves(
      std::string_view op, const std::vector<DeviceId>& devices) const;
  /// Returns a line for each algorithm, by the cluster's links and usual_transport, for any group.
  std::vector<CollectiveCurve> curves_by_links(std::string_view op,
                                               const std::vector<DeviceId>& devices) const;
  /// Returns a lower bound of any all-reduce among some of these devices, if all are planning
  /// kinds. For others, measurements by route and ranks decide.
  std::optional<LeastAllReduce> least_all_reduce(const std::vector<DeviceId>& devices) const;
  /// Returns whether the group has a planning kind and so cannot be measured.
  bool is_planned_only(const std::vector<DeviceId>& group) const;

 private:
  Result<const DeviceTimes*> times_of(const program::DeviceProgram& program) const;
  Result<Times> other_times(const DeviceTimes& times, const program::DeviceProgram& program) const;
  Result<std::vector<DeviceId>> find_devices(const std::vector<std::string>& names) const;
  /// Returns the devices of a collective; an error if it needs hosts as levels and they have none.
  Result<std::vector<DeviceId>> find_group(std::string_view op,
                                           const std::vector<std::string>& names) const;
  Result<void> check_levels(std::string_view op, const std::vector<DeviceId>& group) const;
  Backend backend_of(const std::vector<DeviceId>& group) const;
  bool is_planned(DeviceId device) const;
  bool is_by_links(std::string_view op, const std::vector<DeviceId>& group) const;
  Result<Transfer> measured_transfer(std::string_view op, const ExchangeSize& size,
                                     const std::vector<DeviceId>& group) const;
  Transfer planned_transfer(std::string_view op, const ExchangeSize& size,
                            const std::vector<DeviceId>& group) const;
  std::vector<Algorithm> planned_algorithms(std::string_view op,
                                            const std::vector<DeviceId>& group) const;

  cluster::Cluster cluster_;
  std::map<std::string, DeviceId, std::less<>> ids_;  // by name
  std::vector<char> is_cpu_;                          // by id
  bool has_shared_gpus_;
  Network network_;
  std::map<std::string, DeviceTimes> devices_;
  CollectiveTimes collectives_;
};

}  // namespace motley::cost

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

/// Cost model over measurements: instruction times of the device, alone or in a group as the
/// program is, at the program's samples, divided by the device's emulated speed; collectives by the
/// group's route, as measured. What was measured over links is a transfer of the measured latency
/// and a flow around the ring, at most as fast as measured: alone it takes what was measured, also
/// where the cluster file says that a link is slower, and beside others it shares links. Routes
/// without links take fixed times. A group with a planning kind, which nobody can measure,
/// exchanges over the cluster's links by the cheapest algorithm of its backend (collectives.h), and
/// shares them with what else is under way; with usual_transport. So does a send between two of
/// whose route neither a send nor an all-reduce among two was measured.
class ProfileCost : public CostModel {
 public:
  /// What instructions take in one setting, all at full speed but a table where `is_paced`. Any
  /// part may be null.
  struct SettingTimes {
    std::shared_ptr<const InstructionTimes> table;  ///< of the model split by samples alone
    /// Of other programs of the model; of an instruction that the table has, too, what it says.
    std::shared_ptr<const TimeSource> source = nullptr;
    /// As far as it was measured: what this cannot say is worth measuring.
    std::shared_ptr<const TimeSource> measured = nullptr;
    bool operator==(const SettingTimes&) const = default;  // the same objects
  };
  struct DeviceTimes {
    /// Without exchanges, and with: two settings, as neighbours work at the same time.
    SettingTimes alone, shared;
    Pace pace;                                    ///< by the compute of a whole program
    bool is_paced = false;                        ///< the tables have the pace in them already
    std::vector<InterferenceEntry> interference;  ///< of the device; none: it has none
    Seconds pause;  ///< more for an instruction that waits for what another device sends
    std::optional<double> most_alone = {};  ///< a pace that alone is not exceeded
    /// The one setting by which all instructions of a program are priced.
    const SettingTimes& of(const program::DeviceProgram& program) const {
      return program::is_in_group(program) ? shared : alone;
    }
    /// Of the tables, beside what is in them.
    double table_speed() const { return is_paced ? 1.0 : pace.at(Seconds(1)); }
    /// Does a program take the same on both?
    bool is_same(const DeviceTimes& other) const {
      return alone == other.alone && shared == other.shared && pace == other.pace &&
             most_alone == other.most_alone && pause == other.pause && is_paced == other.is_paced;
    }
  };
  /// `devices`: by name.
  ProfileCost(const cluster::Cluster& cluster, std::map<std::string, DeviceTimes> devices,
              CollectiveTimes collectives);
  Result<Times> times(const program::DeviceProgram& program) const override;
  /// Equal programs on devices of the same tables are looked at once.
  Result<std::vector<Times>> all_times(const program::Program& program) const override;
  Result<Seconds> collective_time(std::string_view op, Bytes bytes,
                                  const std::vector<std::string>& devices) const override;
  Result<Transfer> transfer(std::string_view op, Bytes bytes,
                            const std::vector<std::string>& devices) const override;
  /// As measured over the group's route among as many ranks, or the next number of them; 0 where
  /// nothing was.
  double interference(const std::string& device,
                      const std::vector<std::string>& group) const override;
  std::vector<double> link_capacities() const override;
  /// What collective_time is the least of, at any bytes: what was measured, or a line for each
  /// algorithm that the group has for the collective.
  Result<std::vector<CollectiveCurve>> collective_curves(
      std::string_view op, const std::vector<std::string>& devices) const;
  Result<std::vector<CollectiveCurve>> collective_curves(
      std::string_view op, const std::vector<DeviceId>& devices) const;
  /// A line for each algorithm, by the cluster's links and usual_transport, whoever is in the
  /// group.
  std::vector<CollectiveCurve> curves_by_links(std::string_view op,
                                               const std::vector<DeviceId>& devices) const;
  /// What no all-reduce among some of these devices takes less than, if all of them are planning
  /// kinds. Of others measurements say it, by route and ranks alone.
  std::optional<LeastAllReduce> least_all_reduce(const std::vector<DeviceId>& devices) const;
  /// Has the group a planning kind, so that nobody can measure it?
  bool is_planned_only(const std::vector<DeviceId>& group) const;

 private:
  Result<const DeviceTimes*> times_of(const program::DeviceProgram& program) const;
  Result<Times> other_times(const DeviceTimes& times, const program::DeviceProgram& program) const;
  Result<std::vector<DeviceId>> find_devices(const std::vector<std::string>& names) const;
  /// The devices of a collective; an error where it has hosts for levels and they do not.
  Result<std::vector<DeviceId>> find_group(std::string_view op,
                                           const std::vector<std::string>& names) const;
  Result<void> check_levels(std::string_view op, const std::vector<DeviceId>& group) const;
  Backend backend_of(const std::vector<DeviceId>& group) const;
  bool is_planned(DeviceId device) const;
  bool is_by_links(std::string_view op, const std::vector<DeviceId>& group) const;
  Result<Transfer> measured_transfer(std::string_view op, Bytes bytes,
                                     const std::vector<DeviceId>& group) const;
  Transfer planned_transfer(std::string_view op, Bytes bytes,
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

#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/cost/collective_times.h"
#include "motley/cost/cost_model.h"
#include "motley/cost/device_keys.h"
#include "motley/cost/instruction_times.h"
#include "motley/cost/links/collectives.h"
#include "motley/cost/links/network.h"
#include "motley/cost/operators/pace.h"
#include "motley/cost/operators/time_source.h"

namespace motley::cost {

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
    /// As far as it was measured: what this cannot say is worth measuring. Null: nothing was.
    std::shared_ptr<const TimeSource> measured = nullptr;
    /// Of the tables, beside what is in them.
    double table_speed() const { return is_paced ? 1.0 : pace.at(Seconds(1)); }
    /// Does a program take the same on both?
    bool is_same(const DeviceTimes& other) const {
      return alone == other.alone && shared == other.shared && source == other.source &&
             pace == other.pace && is_paced == other.is_paced;
    }
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
  /// The same of all devices, by rank; equal programs on devices of the same tables once.
  Result<std::vector<Times>> times(const program::Program& program) const;
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

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/links/transfer.h"
#include "motley/program/program.h"

namespace motley::cost {

/// Says how long things take. Implementations: measured tables (profile_cost.h); tests use tables
/// in a line. A missing entry is an error that names the key.
class CostModel {
 public:
  virtual ~CostModel() = default;
  /// Of every instruction of one device's program, in order.
  struct Times {
    std::vector<Seconds> seconds;  ///< at the device's own speed; of transfers 0
    /// Memory beside its results while it runs; empty: not known, or none.
    std::vector<Bytes> scratch;
  };
  virtual Result<Times> times(const program::DeviceProgram& program) const = 0;
  /// The same of all devices, by rank.
  virtual Result<std::vector<Times>> all_times(const program::Program& program) const {
    std::vector<Times> all;
    for (const program::DeviceProgram& device : program.devices) {
      MOTLEY_ASSIGN(all.emplace_back(), times(device));
    }
    return all;
  }
  /// Seconds of a collective among the devices of a group, or of a "motley::send" from the first
  /// device to the second, when it is alone on its links, from the moment the last member has
  /// arrived. `bytes` are those of program::priced_bytes: of "motley::all_reduce" the tensor; of
  /// "motley::all_gather" and "motley::reduce_scatter" the whole as if each of n members had the
  /// largest part m (n m; even parts: the tensor), since the slowest member moves (n - 1) m;
  /// of "motley::all_to_all" the most that a member holds before or after.
  virtual Result<Seconds> collective_time(std::string_view op, Bytes bytes,
                                          const std::vector<std::string>& devices) const = 0;
  /// The same with what it moves over which links, so that transfers under way at the same time
  /// share them. Unless a model says otherwise it uses none and takes collective_time.
  virtual Result<Transfer> transfer(std::string_view op, Bytes bytes,
                                    const std::vector<std::string>& devices) const {
    MOTLEY_ASSIGN(const Seconds time, collective_time(op, bytes, devices));
    return Transfer{{{time, {}}}};
  }
  /// How much slower a device computes while it exchanges with the group: at 1 / (1 + this) of its
  /// speed. 0: not at all, or not known.
  virtual double interference(const std::string& /*device*/,
                              const std::vector<std::string>& /*group*/) const {
    return 0;
  }
  /// Capacity in bytes/s of each link that transfers name, all > 0.
  virtual std::vector<double> link_capacities() const { return {}; }
};

}  // namespace motley::cost

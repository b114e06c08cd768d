#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/links/collective_curve.h"
#include "motley/cost/links/transfer.h"
#include "motley/program/program.h"

namespace motley::cost {

/// What an exchange moves.
struct ExchangeSize {
  Bytes bytes;                    ///< program::priced_bytes
  std::vector<Bytes> parts = {};  ///< of its members (program::uneven_parts); empty: equal
};

/// Prices instructions and exchanges. Implementations: measured tables (profile_cost.h); tests use
/// inline tables. A missing entry is an error that names the key.
class CostModel {
 public:
  virtual ~CostModel() = default;
  /// Costs of every instruction of a device's program, in order.
  struct Times {
    std::vector<Seconds> seconds;  ///< at the device's own speed; 0 for transfers
    /// Memory used while it runs, besides its results; empty: none or unknown.
    std::vector<Bytes> scratch;
  };
  virtual Result<Times> times(const program::DeviceProgram& program) const = 0;
  virtual Result<std::vector<Times>> all_times(const program::Program& program) const {
    std::vector<Times> all;
    for (const program::DeviceProgram& device : program.devices) {
      MOTLEY_ASSIGN(all.emplace_back(), times(device));
    }
    return all;
  }
  /// Returns the seconds of a group's collective, or of a "motley::send" from the first device to
  /// the second, alone on its links and from the last arrival. `bytes` are those of
  /// program::priced_bytes: for "motley::all_reduce" the tensor; for "motley::all_gather" and
  /// "motley::reduce_scatter" n m, as if each of n members had the largest part m, since the
  /// slowest member moves (n - 1) m; for "motley::all_to_all" the most that a member holds before
  /// or after.
  virtual Result<Seconds> collective_time(std::string_view op, Bytes bytes,
                                          const std::vector<std::string>& devices) const = 0;
  /// Returns the same with the traffic on each link, so that simultaneous transfers share links,
  /// and of uneven parts what each member moves. By default it uses no link and takes
  /// collective_time.
  virtual Result<Transfer> transfer(std::string_view op, const ExchangeSize& size,
                                    const std::vector<std::string>& devices) const {
    MOTLEY_ASSIGN(const Seconds time, collective_time(op, size.bytes, devices));
    return Transfer{{{time, {}}}};
  }
  /// Returns the curves over bytes whose minimum is collective_time. Usage error: the model has
  /// none, or the collective was not measured.
  virtual Result<std::vector<CollectiveCurve>> collective_curves(
      std::string_view op, const std::vector<std::string>& /*devices*/) const {
    return usage_error("cost.curves", std::string(op) + ": has no curve over bytes");
  }
  /// Returns f: a device computes at 1 / (1 + f) of its speed while it exchanges. 0: unknown.
  virtual double interference(const std::string& /*device*/,
                              const std::vector<std::string>& /*group*/) const {
    return 0;
  }
  /// Returns the capacity in bytes/s of each link that transfers name, all > 0.
  virtual std::vector<double> link_capacities() const { return {}; }
};

}  // namespace motley::cost

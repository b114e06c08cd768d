#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/measured/database.h"
#include "motley/cost/measured/operator_work.h"

namespace motley::cost {

/// Where a compute measurement was taken.
struct DeviceKey {
  std::string kind;  ///< "cpu", or a GPU's name
  int threads = 1;
  std::string torch;  ///< "2.15"
  bool operator==(const DeviceKey&) const = default;
  auto operator<=>(const DeviceKey&) const = default;
};

/// One operator at concrete shapes (program::cost_key): one round written, merged rounds read.
struct OpEntry {
  DeviceKey device;
  std::string key;
  Seconds median;
  double spread = 0.0;  ///< median absolute deviation / median, within a round
  std::int64_t samples = 0;
  Bytes scratch;             ///< memory besides its results while it runs
  OperatorWork work;         ///< for fitting models
  double deviation = 0.0;    ///< read only: relative standard error of the merged median
  bool has_drifted = false;  ///< read only: the newest rounds contradict the older ones
};

/// One collective among `ranks` ranks over `route` ("local", or a link, "1Gbps+100us").
struct CollectiveEntry {
  std::string op;
  std::string backend;  ///< "gloo", "gloo only", "gloo of gpus", "nccl" (device_keys.h)
  std::string route;
  int ranks = 0;
  Bytes bytes;
  Seconds median;
  double spread = 0.0;
  std::int64_t samples = 0;
  bool has_drifted = false;  ///< read only
};

/// How much slower a device computes while it exchanges with others.
struct InterferenceEntry {
  DeviceKey device;
  std::string backend, route;  ///< as in CollectiveEntry
  int ranks = 0;
  double factor = 0;         ///< fit_interference; read: the median of the rounds
  std::int64_t samples = 0;  ///< read: of all rounds
  bool operator==(const InterferenceEntry&) const = default;
};

/// The prediction and the measurement of a run.
struct PredictionEntry {
  std::string subject;   ///< model and how it is lowered
  std::string cluster;   ///< its hash
  std::string quantity;  ///< "step" in seconds, "memory" in bytes of the fullest device
  double predicted = 0;  ///< > 0
  double measured = 0;   ///< > 0
  bool operator==(const PredictionEntry&) const = default;
};

/// Measured times in one SQLite file. Writing an entry again adds a round; the newest kRoundsKept
/// are kept and merged on reading. Several processes may share a file, even of several hosts
/// (database.h): each put is atomic and none is lost. One object serves one thread. Faults in the
/// file are usage errors; those of the disk and of processes that hold the file for too long
/// (cost.busy) are runtime errors.
class ProfileStore {
 public:
  /// Opens or creates; a file that is not a profile store of this version is a usage error.
  static Result<ProfileStore> open(const std::string& path, Seconds wait = kLongestHold);
  static constexpr int kRoundsKept = 8;
  ProfileStore(ProfileStore&&) noexcept;
  ProfileStore& operator=(ProfileStore&&) noexcept;
  ~ProfileStore();

  /// Copies the store to a new file, consistent between transactions.
  Result<void> copy_to(const std::string& path) const;
  /// Writes the entries in one transaction.
  Result<void> put(const std::vector<OpEntry>& entries);
  Result<void> put(const std::vector<CollectiveEntry>& entries);
  Result<std::optional<OpEntry>> find_op(const DeviceKey& device, const std::string& key) const;
  /// Returns all entries of a device by key, to build cost tables with one read.
  Result<std::vector<OpEntry>> ops(const DeviceKey& device) const;
  Result<std::vector<CollectiveEntry>> collectives() const;
  Result<void> put(const std::vector<InterferenceEntry>& entries);
  /// Returns all, by device, backend, route and ranks.
  Result<std::vector<InterferenceEntry>> interference() const;
  /// Appends; keeps the newest 1000.
  Result<void> put(const PredictionEntry& entry);
  /// Returns them oldest first.
  Result<std::vector<PredictionEntry>> predictions() const;
  /// Records the batches at which a subject (a model and its lowering) was profiled on a device.
  Result<void> put_batches(const std::string& subject, const DeviceKey& device,
                           const std::vector<std::int64_t>& batches);
  Result<std::vector<std::int64_t>> batches(const std::string& subject,
                                            const DeviceKey& device) const;
  /// Returns the devices on which a subject was profiled, in order.
  Result<std::vector<DeviceKey>> profiled_devices(const std::string& subject) const;

 private:
  struct State;
  explicit ProfileStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace motley::cost

#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/job.h"
#include "motley/run/launch/environment.h"

namespace motley::run {

/// How the ranks of a job find each other.
struct RendezvousOptions {
  int rank = 0;
  int size = 1;
  std::string file;                  ///< local job: a file that all ranks share; needs no port
  std::optional<StoreAddress> keys;  ///< replaces the file by a served store (served_store.h)
  std::optional<RankPlace> place;    ///< job of an external launcher: a TCP store; `file` is unused
  Seconds timeout{30};               ///< for connecting and for every get
};

/// A key-value store that all ranks of a job share, with operations to agree on values. Keys live
/// as long as the job and differ between attempts. Thread-safe as c10d's; used by one thread.
class Rendezvous {
 public:
  /// Connects (rank 0 may serve). Reports a port in use as one clear error.
  static Result<std::unique_ptr<Rendezvous>> open(const RendezvousOptions& options);
  ~Rendezvous();

  Result<void> set(const std::string& key, const std::string& value);
  /// Waits for the key. Runtime errors: "run.timeout"; "run.peer-lost": the store is gone.
  Result<std::string> get(const std::string& key, Seconds timeout);
  Result<std::string> get(const std::string& key) { return get(key, options_.timeout); }

  /// Ends all current and future waits here with an error, but not branches'. Any thread.
  void cancel();

  Result<void> remove(const std::string& key);

  /// Verifies that every rank gives the same value under `key` (each key once). All get the same
  /// result: nothing, `run.disagreement` with the first rank that differs from rank 0, or
  /// `run.timeout` with the first that did not come. Collective.
  Result<void> agree(const std::string& key, const std::string& value);
  /// Returns every rank's value under `key` (each key once), by rank. Collective.
  Result<std::vector<std::string>> share(const std::string& key, const std::string& own,
                                         Seconds timeout);
  /// Waits until all ranks have arrived. Collective; each key once.
  Result<void> barrier(const std::string& key, Seconds timeout);

  /// Opens another connection, for another thread, with separate keys, among `size` ranks that
  /// number this one `rank`. `cancelled`: the flag of `cancel`, of several branches; null: its own.
  Result<std::unique_ptr<Rendezvous>> branch(
      const std::string& name, int rank, int size,
      std::shared_ptr<std::atomic<bool>> cancelled = nullptr) const;

  /// Switches to keys served elsewhere, still none, while nobody waits. Branches keep their store.
  Result<void> move_keys(const StoreAddress& keys);

  /// Continues with the first `size` ranks; the others have left.
  void set_size(int size) { options_.size = size; }
  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const RendezvousOptions& options() const { return options_; }
  /// Returns this process's address for the other ranks: 127.0.0.1 if all are on this host.
  Result<std::string> own_address() const;

  struct State;  ///< holds the c10d store (store.h)
  State& state() { return *state_; }

 private:
  Rendezvous(RendezvousOptions options, std::unique_ptr<State> state);
  Result<void> meet(const std::string& key, const std::string& value, Seconds timeout);
  Result<void> hear_all(const std::string& key, const std::string& wanted, Seconds timeout);
  RendezvousOptions options_;
  std::unique_ptr<State> state_;
};

}  // namespace motley::run

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
  std::string file;                  ///< local job: a file that all ranks share; no port is needed
  std::optional<StoreAddress> keys;  ///< a served store in its place (served_store.h)
  std::optional<RankPlace> place;    ///< job of an external launcher: a TCP store; `file` is unused
  Seconds timeout{30};               ///< for connecting and for every get
};

/// A key-value store that all ranks of a job share, and what is built on it: agreeing on a value.
/// Keys live as long as the job; keys of an attempt do not meet those of an earlier one.
/// Thread-safe as far as c10d's stores are; used by one thread.
class Rendezvous {
 public:
  /// Connects (rank 0 may serve). A port that somebody else uses is one clear error.
  static Result<std::unique_ptr<Rendezvous>> open(const RendezvousOptions& options);
  ~Rendezvous();

  Result<void> set(const std::string& key, const std::string& value);
  /// Waits for the key. Runtime error "run.timeout" when it does not come; "run.peer-lost" when the
  /// store is gone.
  Result<std::string> get(const std::string& key, Seconds timeout);
  Result<std::string> get(const std::string& key) { return get(key, options_.timeout); }

  /// All waits that are under way here, and all to come, end with an error: those of branches are
  /// their own. Any thread.
  void cancel();

  /// Forgets a key.
  Result<void> remove(const std::string& key);

  /// Every rank gives its value under the same `key` (each key once); all get an error
  /// `run.disagreement` naming the first rank whose value is not rank 0's, or `run.timeout` naming
  /// the first that did not come, or nothing. Collective.
  Result<void> agree(const std::string& key, const std::string& value);
  /// What all ranks say under the same `key` (each key once), by rank. Collective.
  Result<std::vector<std::string>> share(const std::string& key, const std::string& own,
                                         Seconds timeout);
  /// Waits until all ranks have come. Collective; each key once.
  Result<void> barrier(const std::string& key, Seconds timeout);

  /// Another connection to the same store, for another thread, whose keys meet no others: those of
  /// `size` ranks that call this one `rank`. `cancelled`: what `cancel` sets, of several branches
  /// at once; null: of this one.
  Result<std::unique_ptr<Rendezvous>> branch(
      const std::string& name, int rank, int size,
      std::shared_ptr<std::atomic<bool>> cancelled = nullptr) const;

  /// The keys are served elsewhere from now on, where there are none yet. Not while somebody waits
  /// for any; branches go by those that they were made with.
  Result<void> move_keys(const StoreAddress& keys);

  /// The first `size` ranks go on; the others have left.
  void set_size(int size) { options_.size = size; }
  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const RendezvousOptions& options() const { return options_; }
  /// Address that the other ranks can reach this process at: 127.0.0.1 when all are on this host.
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

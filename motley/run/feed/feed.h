#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/data/batch.h"
#include "motley/data/data_source.h"
#include "motley/run/batch_order.h"

namespace motley::run {

/// Supplies one rank's samples, batch after batch.
class Feed {
 public:
  virtual ~Feed() = default;
  /// Waits for the next batch, valid until the next call. Runtime error `run.feed`: loading failed.
  virtual Result<const data::Batch*> next() = 0;
  /// Returns how long the last call waited.
  virtual double waited_s() const = 0;
  /// Returns the seconds of loaders() processes for the last batch, if this rank has them; else 0.
  virtual double loading_s() const = 0;
  virtual int loaders() const = 0;
};

struct FeedOptions {
  data::DataSource source;
  std::vector<data::InputSpec> inputs;
  BatchOrder order;
  std::optional<std::uint64_t> shuffle;
  int rank = 0;
  std::vector<std::string> machines;  ///< by rank, the this_machine() of each
  Seconds timeout{30};                ///< per sample
  /// Shares a text among one machine's ranks: the first passes it, the others pass none and wait.
  std::function<Result<std::string>(std::optional<std::string> text)> share;
  /// Called regularly while samples arrive, so that waiting is not mistaken for hanging.
  std::function<void()> on_progress = [] {};
};

/// Every rank maps files itself. Samples that Python loads are loaded by each machine's first rank
/// for all its ranks, each sample once (loader.h). Collective if samples are loaded.
Result<std::unique_ptr<Feed>> open_feed(FeedOptions options);

/// Returns a name equal for processes that can map each other's memory by /proc: one machine and
/// PID space.
std::string this_machine();

}  // namespace motley::run

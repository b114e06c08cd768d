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

/// One rank's samples, batch after batch.
class Feed {
 public:
  virtual ~Feed() = default;
  /// The samples of the next batch, waited for; they are there until the next call. Runtime error
  /// `run.feed`: what loading them failed of.
  virtual Result<const data::Batch*> next() = 0;
  /// Seconds that the last call waited.
  virtual double waited_s() const = 0;
  /// Seconds of work that loading the last batch took the processes of this host, where this rank
  /// has them; else 0.
  virtual double loading_s() const = 0;
  /// How many processes share that work.
  virtual int loaders() const = 0;
};

struct FeedOptions {
  data::DataSource source;
  std::vector<data::InputSpec> inputs;
  BatchOrder order;
  std::optional<std::uint64_t> shuffle;
  int rank = 0;
  std::vector<std::string> machines;  ///< by rank, what this_machine() says there
  Seconds timeout{30};                ///< for one sample
  /// Tells the ranks of one machine a text of the first of them, which gives it; the others give
  /// nothing and wait for it.
  std::function<Result<std::string>(std::optional<std::string> text)> share;
  /// Called every so often while samples come, so that waiting is not taken for hanging.
  std::function<void()> on_progress = [] {};
};

/// Files are mapped by every rank. What Python loads, the first rank of each machine has loaded for
/// all of that machine, each sample once (loader.h). Collective where samples are loaded.
Result<std::unique_ptr<Feed>> open_feed(FeedOptions options);

/// Equal for processes that can map each other's memory by /proc: of one machine and one space of
/// process numbers.
std::string this_machine();

}  // namespace motley::run

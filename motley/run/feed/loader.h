#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/data/data_source.h"
#include "motley/data/dataset.h"
#include "motley/run/feed/sample_ring.h"
#include "motley/run/hosts/child_process.h"

namespace motley::run {

/// What Python needs to load samples (python -m motley.loader), as JSON.
struct LoaderQuestion {
  data::DataSource source;
  std::vector<data::InputSpec> inputs;
};
Json loader_question_to_json(const LoaderQuestion& question);

/// Makes Python open the source and try its first sample. Returns its `samples`, -1 for a stream.
/// Errors: what the user's code raised, or a sample that does not fit the inputs.
Result<std::int64_t> count_loaded_samples(const LoaderQuestion& question, Seconds timeout);
/// Writes samples (epoch, number) to a .safetensors file as x0, x1, ...
Result<void> write_loaded_samples(const LoaderQuestion& question,
                                  const std::vector<std::pair<std::int64_t, std::int64_t>>& samples,
                                  const std::string& path, Seconds timeout);

struct WantedSample {
  std::int64_t epoch = 0, number = 0;
  int readers = 0;  ///< ranks of this host that will read it
};
/// The sequence; called in order for item 0, 1, ...
using WantedSamples = std::function<WantedSample(std::int64_t item)>;

/// Fills a ring. Starts Python's processes and requests samples as far ahead as the ring has room.
/// Works on its own thread. Any failure (a dataset that raises, a process that dies or takes longer
/// than `timeout` for a sample) fails the ring with a message that names the sample.
class Loader {
 public:
  struct Options {
    LoaderQuestion question;
    int ranks = 1;               ///< ranks of this machine, which need cores of their own
    Seconds timeout{30};         ///< per sample
    Seconds start_timeout{300};  ///< until the source is open
  };
  /// `ring` outlives it.
  Loader(Options options, SampleRing& ring, WantedSamples wanted);
  ~Loader();

  /// Returns the recent mean of one process's seconds per sample; 0 before the first.
  double sample_seconds() const { return sample_seconds_.load(std::memory_order_relaxed); }
  int processes() const { return processes_.load(std::memory_order_relaxed); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Asked {
    std::int64_t item = 0;
    WantedSample sample;
    Clock::time_point since;  ///< when requested, or begun
    std::int64_t pid = 0;     ///< the process that began it; 0: none yet
  };

  void work();
  Result<void> start();
  int count_processes() const;
  void ask();
  void wait();
  void take_line(const std::string& line);
  void check_time();
  std::string name() const;
  void fail(const std::string& message);

  Options options_;
  SampleRing& ring_;
  WantedSamples wanted_;
  Child child_;
  bool is_open_ = false, has_failed_ = false;
  Clock::time_point since_ = Clock::now();  ///< when anything was last received
  std::int64_t next_item_ = 0;
  std::optional<WantedSample> next_;
  std::map<std::int64_t, Asked> asked_;  ///< by slot
  std::atomic<double> sample_seconds_ = 0;
  std::atomic<int> processes_ = 0;
  std::atomic<bool> ends_ = false;
  std::thread thread_;  ///< last: uses the others
};

}  // namespace motley::run

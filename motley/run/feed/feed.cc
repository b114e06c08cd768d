#include "motley/run/feed/feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <utility>

#include "motley/base/deadline.h"
#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/run/feed/loader.h"
#include "motley/run/feed/sample_ring.h"

namespace motley::run {
namespace {

constexpr std::int64_t kLook = 50'000'000;  // ns between checks for failures
constexpr std::int64_t kBatchesAhead = 2;   // batches that a ring holds, the current one included
constexpr std::int64_t kSlotsBeside = 16;   // slots that processes fill while the batches are full
constexpr std::int64_t kLeastSlot = 64;     // bytes
constexpr double kStarting = 10;            // timeouts until the first sample: Python has to start
constexpr double kMargin = 5;               // seconds; the leader, which knows more, reports first

class FileFeed final : public Feed {
 public:
  FileFeed(FeedOptions options, std::unique_ptr<data::Dataset> dataset)
      : options_(std::move(options)),
        dataset_(std::move(dataset)),
        order_(dataset_->samples(), options_.shuffle),
        next_(options_.order.first_batch()) {}

  Result<const data::Batch*> next() override {
    std::vector<std::int64_t> numbers =
        options_.order.kind(next_).places[static_cast<std::size_t>(options_.rank)];
    const std::int64_t first = options_.order.position(next_);
    for (std::int64_t& number : numbers) {
      number = order_.at(first + number);
      if (!dataset_->has(number)) return lacks(number);
    }
    batch_.emplace(*dataset_, std::move(numbers));
    ++next_;
    return &*batch_;
  }
  double waited_s() const override { return 0; }
  double loading_s() const override { return 0; }
  int loaders() const override { return 0; }

 private:
  tl::unexpected<Error> lacks(std::int64_t number) const {
    return runtime_error("run.feed",
                         fmt::format("{}: rank {} is to read sample {} in batch {}, which is not "
                                     "among those that its host was given",
                                     options_.source.path, options_.rank, number, next_));
  }

  FeedOptions options_;
  std::unique_ptr<data::Dataset> dataset_;
  data::SampleOrder order_;
  std::int64_t next_;
  std::optional<data::DatasetBatch> batch_;
};

/// The samples that this machine needs from batches of one kind.
struct HereOfKind {
  std::vector<std::int64_t> places;  ///< needed by any of its ranks, ascending
  std::vector<int> readers;          ///< by place: number of ranks that need it
  std::vector<std::int64_t> own;     ///< this rank's samples in order: indices into places
};

HereOfKind here_of(const BatchKind& kind, const FeedOptions& options) {
  std::map<std::int64_t, int> readers;
  const auto own = static_cast<std::size_t>(options.rank);
  for (std::size_t rank = 0; rank < kind.places.size(); ++rank) {
    if (options.machines[rank] != options.machines[own]) continue;
    for (const std::int64_t place : kind.places[rank]) ++readers[place];
  }
  HereOfKind found;
  for (const auto& [place, count] : readers) {
    found.places.push_back(place);
    found.readers.push_back(count);
  }
  for (const std::int64_t place : kind.places[own])
    found.own.push_back(std::lower_bound(found.places.begin(), found.places.end(), place) -
                        found.places.begin());
  return found;
}

/// Enumerates a machine's items in order: from each batch, the samples that its ranks need.
class HereSequence {
 public:
  HereSequence(const BatchOrder& order, const std::vector<HereOfKind>& here, SampleNumbers numbers)
      : order_(&order), here_(&here), numbers_(std::move(numbers)), batch_(order.first_batch()) {}
  WantedSample next() {
    while (at_ == here().places.size()) {
      ++batch_;
      at_ = 0;
    }
    const std::int64_t position = order_->position(batch_) + here().places[at_];
    return {numbers_.epoch(position), numbers_.number(position), here().readers[at_++]};
  }

 private:
  const HereOfKind& here() const { return (*here_)[order_->kind_index(batch_)]; }
  const BatchOrder* order_;
  const std::vector<HereOfKind>* here_;
  SampleNumbers numbers_;
  std::int64_t batch_;
  std::size_t at_ = 0;
};

/// A batch of this rank's samples in a ring, by item.
class RingBatch final : public data::Batch {
 public:
  RingBatch(const SampleRing& ring, const std::vector<data::InputSpec>& inputs)
      : ring_(&ring), inputs_(&inputs), offsets_(data::input_offsets(inputs, 1)) {}
  std::int64_t samples() const override { return static_cast<std::int64_t>(items.size()); }
  std::int64_t sample_bytes(std::size_t input) const override {
    return data::sample_bytes((*inputs_)[input]);
  }
  void read(std::size_t input, std::int64_t place, std::byte* out) const override {
    const std::byte* sample = ring_->sample(items[static_cast<std::size_t>(place)]);
    std::copy_n(sample + offsets_[input], sample_bytes(input), out);
  }

  std::vector<std::int64_t> items;

 private:
  const SampleRing* ring_;
  const std::vector<data::InputSpec>* inputs_;
  std::vector<std::int64_t> offsets_;
};

class RingFeed final : public Feed {
 public:
  explicit RingFeed(FeedOptions options)
      : options_(std::move(options)), next_(options_.order.first_batch()) {
    for (const BatchKind& kind : options_.order.kinds()) here_.push_back(here_of(kind, options_));
  }

  Result<void> open() {
    const auto first = std::find(options_.machines.begin(), options_.machines.end(), machine());
    leader_ = static_cast<int>(first - options_.machines.begin());
    if (leader_ != options_.rank) {
      MOTLEY_ASSIGN(const std::string address, options_.share(std::nullopt));
      MOTLEY_ASSIGN(ring_, SampleRing::open(address));
    } else {
      MOTLEY_RETURN_IF_ERROR(lead());
    }
    batch_.emplace(*ring_, options_.inputs);
    return {};
  }

  Result<const data::Batch*> next() override {
    release();
    const HereOfKind& here = here_[options_.order.kind_index(next_)];
    for (const std::int64_t at : here.own) batch_->items.push_back(first_item_ + at);
    const auto begin = std::chrono::steady_clock::now();
    for (const std::int64_t item : batch_->items) MOTLEY_RETURN_IF_ERROR(wait_for(item));
    waited_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (loader_) loading_s_ = loader_->sample_seconds() * static_cast<double>(here.places.size());
    first_item_ += static_cast<std::int64_t>(here.places.size());
    ++next_;
    return &*batch_;
  }
  double waited_s() const override { return waited_s_; }
  double loading_s() const override { return loading_s_; }
  int loaders() const override { return loader_ ? loader_->processes() : 0; }

 private:
  const std::string& machine() const {
    return options_.machines[static_cast<std::size_t>(options_.rank)];
  }

  Result<void> lead() {
    // A batch is used only once it is complete, so the ring must hold the largest one.
    std::size_t most = 0;
    for (const HereOfKind& here : here_) most = std::max(most, here.places.size());
    const auto ranks = std::count(options_.machines.begin(), options_.machines.end(), machine());
    const std::int64_t slot_bytes = data::input_offsets(options_.inputs, 1).back();
    const std::int64_t slots = kBatchesAhead * static_cast<std::int64_t>(most) + kSlotsBeside;
    MOTLEY_ASSIGN(ring_, SampleRing::create(slots, std::max(slot_bytes, kLeastSlot)));
    if (ranks > 1) MOTLEY_RETURN_IF_ERROR(options_.share(ring_->address()));
    if (most == 0) return {};  // no rank here needs a sample: the sequence is empty
    MOTLEY_ASSIGN(SampleNumbers numbers,
                  SampleNumbers::make(options_.source, options_.source.samples, options_.shuffle));
    sequence_.emplace(options_.order, here_, std::move(numbers));
    Loader::Options loading;
    loading.question = {options_.source, options_.inputs};
    loading.ranks = static_cast<int>(ranks);
    loading.timeout = options_.timeout;
    loading.start_timeout = Seconds(kStarting * options_.timeout.value);
    loader_ = std::make_unique<Loader>(loading, *ring_,
                                       [this](std::int64_t) { return sequence_->next(); });
    return {};
  }

  Result<void> wait_for(std::int64_t item) {
    std::uint32_t progress = ring_->progress();
    const auto limit = [&] {  // Python has to start before the first sample
      return Seconds(options_.timeout.value * (progress == 0 ? kStarting : 1) + kMargin);
    };
    Deadline deadline = Deadline::after(limit());
    while (!ring_->wait_for(item, kLook)) {
      if (const auto failure = ring_->failure()) return runtime_error("run.feed", *failure);
      if (progress == 0) options_.on_progress();
      if (ring_->progress() != progress) {
        progress = ring_->progress();
        deadline = Deadline::after(limit());
        options_.on_progress();
      }
      if (deadline.has_passed())
        return runtime_error("run.feed",
                             fmt::format("{}: no sample came for {:.0f} s from rank {}, which "
                                         "loads those of its machine",
                                         options_.source.path, limit().value, leader_));
    }
    return {};
  }

  void release() {
    for (const std::int64_t item : batch_->items) ring_->release(item);
    if (!batch_->items.empty()) ring_->wake_leader();
    batch_->items.clear();
  }

  FeedOptions options_;
  std::vector<HereOfKind> here_;
  int leader_ = 0;
  std::unique_ptr<SampleRing> ring_;
  std::optional<HereSequence> sequence_;
  std::unique_ptr<Loader> loader_;  // destroyed before what it uses
  std::optional<RingBatch> batch_;
  std::int64_t next_;            // batch
  std::int64_t first_item_ = 0;  // of the next batch
  double waited_s_ = 0, loading_s_ = 0;
};

}  // namespace

std::string this_machine() {
  std::string boot, space;
  if (const auto text = read_file("/proc/sys/kernel/random/boot_id")) boot = trim(*text);
  std::error_code fault;
  space = std::filesystem::read_symlink("/proc/self/ns/pid", fault).string();
  return boot + " " + space;
}

Result<std::unique_ptr<Feed>> open_feed(FeedOptions options) {
  if (!data::is_loaded(options.source)) {
    MOTLEY_ASSIGN(auto dataset, data::open_dataset(options.source, options.inputs));
    return std::make_unique<FileFeed>(std::move(options), std::move(dataset));
  }
  auto feed = std::make_unique<RingFeed>(std::move(options));
  MOTLEY_RETURN_IF_ERROR(feed->open());
  return feed;
}

}  // namespace motley::run

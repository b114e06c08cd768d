#include "motley/search/stages/shapes/fastest_shape.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "motley/search/stages/costs/device_numbers.h"

namespace motley::search {

namespace {

constexpr float kTooLate = std::numeric_limits<float>::infinity();

}  // namespace

bool FastestShape::can_search(const std::vector<DevicePool>& pools) {
  return DeviceNumbers(pools).size() <= kMostCounts;
}

/// One question's dynamic program. A count is the number of a set of used devices.
class FastestProgram {
  /// A suffix of stages: the first is on `unit` and ends at `end`, before one of kind `next`.
  struct Suffix {
    float time = kTooLate;
    std::int32_t unit = 0, end = 0, next = 0;
  };

  struct TimedUnit {
    std::size_t index = 0;    ///< in StageCosts::units()
    std::size_t kind = 0;     ///< class of units that send and receive alike
    std::vector<double> all;  ///< seconds of all samples, prefix sums
  };

 public:
  FastestProgram(const ShapeSearch& search, const FastestShape::Question& question)
      : costs_(search.sums().costs()),
        question_(question),
        tables_(search.tables(question.micro_batch)),
        numbers_(costs_.pools()),
        counts_(numbers_.size()),
        layers_(costs_.layers()),
        full_(question.samples / question.micro_batch),
        rest_(question.samples % question.micro_batch) {
    for (std::size_t u = 0; u < costs_.units().size(); ++u)
      if (tables_.work[u] != nullptr && (rest_ == 0 || costs_.knows(u, rest_)))
        add_unit(search.sums(), u);
    find_rooms();
  }

  std::map<std::size_t, ReplicaShape> find() {
    std::map<std::size_t, ReplicaShape> found;
    const std::size_t most = std::min(layers_, question_.most_stages);
    for (std::size_t stages = 1; stages <= most && !units_.empty(); ++stages) {
      suffixes_.emplace_back((layers_ + 1) * kinds_.size() * counts_);
      has_any_ = false;
      for (std::size_t end = layers_; end > 0; --end)
        if ((stages == 1) == (end == layers_)) extend(stages, end);
      if (auto shape = read(stages)) found.emplace(stages, *std::move(shape));
      if (!has_any_) break;
    }
    return found;
  }

 private:
  std::size_t at(std::size_t layer, std::size_t kind, std::size_t count) const {
    return (layer * kinds_.size() + kind) * counts_ + count;
  }

  std::size_t devices(std::size_t unit) const { return numbers_.of(costs_.units()[unit]); }

  void add_unit(const StageSums& sums, std::size_t u) {
    auto kind = std::find(kinds_.begin(), kinds_.end(), tables_.identical[u]);
    if (kind == kinds_.end()) kind = kinds_.insert(kind, tables_.identical[u]);
    TimedUnit& made =
        units_.emplace_back(TimedUnit{u, static_cast<std::size_t>(kind - kinds_.begin()), {}});
    const WorkSums* odd = rest_ > 0 ? &sums.work(u, rest_) : nullptr;
    for (std::size_t i = 0; i <= layers_; ++i)
      made.all.push_back(static_cast<double>(full_) * tables_.work[u]->pass(0, i) +
                         (odd != nullptr ? odd->pass(0, i) : 0));
  }

  /// Finds, by unit, the counts that leave its devices free.
  void find_rooms() {
    for (const TimedUnit& unit : units_) {
      std::vector<std::size_t>& rooms = rooms_.emplace_back();
      for (std::size_t count = 0; count < counts_; ++count)
        if (numbers_.has_room(count, costs_.units()[unit.index])) rooms.push_back(count);
    }
  }

  /// Prepends stages that end at `end` to suffixes of one stage fewer.
  void extend(std::size_t stages, std::size_t end) {
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      if (!gather(stages, end, kind)) continue;
      for (std::size_t u = 0; u < units_.size(); ++u)
        if (units_[u].kind == kind)
          for (std::size_t first = end; first-- > 0;) prepend(stages, u, first, end);
    }
  }

  /// Finds, by count, the fastest suffix from `end`, with messages from this kind; false if none.
  bool gather(std::size_t stages, std::size_t end, std::size_t kind) {
    behind_.assign(counts_, {kTooLate, -1});
    if (stages == 1) {
      behind_[0].first = 0;
      return true;
    }
    bool any = false;
    const std::size_t units = costs_.units().size();
    for (std::size_t next = 0; next < kinds_.size(); ++next) {
      const double messages = question_.message_weight *
                              tables_.messages[(end * units + kinds_[kind]) * units + kinds_[next]];
      const Suffix* suffix = &suffixes_[stages - 2][at(end, next, 0)];
      for (std::size_t count = 0; count < counts_; ++count) {
        const auto time = static_cast<float>(suffix[count].time + messages);
        if (!(time < behind_[count].first)) continue;
        behind_[count] = {time, static_cast<std::int32_t>(next)};
        any = true;
      }
    }
    return any;
  }

  void prepend(std::size_t stages, std::size_t u, std::size_t first, std::size_t end) {
    const TimedUnit& unit = units_[u];
    const std::size_t stretch = first * (layers_ + 1) + end;
    const double all = unit.all[end] - unit.all[first], post = tables_.post[unit.index][stretch];
    const std::int64_t under_way =
        std::min(static_cast<std::int64_t>(stages), full_ + (rest_ > 0 ? 1 : 0));
    if (all + post > question_.seconds || under_way > tables_.kept[unit.index][stretch]) return;
    const auto one =
        static_cast<float>(question_.fill_weight * tables_.work[unit.index]->pass(first, end));
    const auto least = static_cast<float>(all), late = static_cast<float>(first == 0 ? post : 0);
    Suffix* now = &suffixes_.back()[at(first, unit.kind, devices(unit.index))];
    for (const std::size_t count : rooms_[u]) {
      const auto& [behind, next] = behind_[count];
      const float time = (stages == 1 ? least + behind : std::max(least, one + behind)) + late;
      if (!(time < now[count].time) || time > question_.seconds) continue;
      now[count] = {time, static_cast<std::int32_t>(unit.index), static_cast<std::int32_t>(end),
                    next};
      has_any_ = true;
    }
  }

  /// Returns the fastest whole replica with this many stages.
  std::optional<ReplicaShape> read(std::size_t stages) const {
    const auto whole = suffixes_.back().begin();  // suffixes from layer 0 come first
    const auto best =
        std::min_element(whole, whole + static_cast<std::ptrdiff_t>(kinds_.size() * counts_),
                         [](const Suffix& a, const Suffix& b) { return a.time < b.time; });
    if (best->time == kTooLate) return std::nullopt;
    std::size_t used = static_cast<std::size_t>(best - whole) % counts_;
    ReplicaShape shape{{}, question_.micro_batch};
    std::size_t first = 0;
    for (const Suffix* suffix = &*best;; --stages) {
      const auto unit = static_cast<std::size_t>(suffix->unit);
      const auto end = static_cast<std::size_t>(suffix->end);
      shape.stages.push_back({first, end, unit});
      if (stages == 1) return shape;
      used -= devices(unit);
      first = end;
      suffix = &suffixes_[stages - 2][at(end, static_cast<std::size_t>(suffix->next), used)];
    }
  }

  const StageCosts& costs_;
  const FastestShape::Question& question_;
  const ShapeSearch::BatchTables& tables_;
  DeviceNumbers numbers_;
  std::size_t counts_;  // number of counts
  std::size_t layers_;
  std::int64_t full_, rest_;        // full micro-batches; samples of the smaller one
  std::vector<std::size_t> kinds_;  // first unit of each
  std::vector<TimedUnit> units_;
  std::vector<std::vector<std::size_t>> rooms_;         // by unit
  std::vector<std::vector<Suffix>> suffixes_;           // by stages - 1
  std::vector<std::pair<float, std::int32_t>> behind_;  // by count: time, kind
  bool has_any_ = false;
};

std::map<std::size_t, ReplicaShape> FastestShape::find(const Question& question) const {
  return FastestProgram(search_, question).find();
}

}  // namespace motley::search

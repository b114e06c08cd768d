#include "motley/search/stages/plan_proof.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "motley/search/stages/all_places.h"
#include "motley/search/stages/costs/device_numbers.h"
#include "motley/search/stages/shapes/sample_bound.h"

namespace motley::search {
namespace {

constexpr double kNoEnd = std::numeric_limits<double>::infinity();
constexpr double kWorthFinding = 1 - 1e-6;     // times what is known: worth finding
constexpr double kClockRounding = 1e-8;        // s, of simulated times
constexpr std::size_t kMostEntries = 1 << 20;  // of the table

/// Seconds by each of kTriedSchedules.
using ScheduleTimes = std::array<double, std::size(kTriedSchedules)>;

/// A replica with samples. Places are not given.
struct Offer {
  StageReplica replica;
  std::size_t devices = 0;      // used, as a number of the table
  double model = 0;             // seconds
  std::optional<double> alone;  // simulated: least of all places
};

/// Offers that use as many devices for as many samples, by rising time of the model.
struct OfferClass {
  std::size_t devices = 0;
  std::int64_t samples = 0;
  std::vector<std::size_t> offers;
};

class PlanProof {
 public:
  PlanProof(const ShapeSearch& search, const StageEvaluator& evaluator,
            const ProofQuestion& question)
      : search_(search),
        sums_(search.sums()),
        evaluator_(evaluator),
        question_(question),
        known_(question.known.value * kWorthFinding),
        numbers_(costs().pools()),
        rates_(device_rates(sums_)) {
    for (const DevicePool& pool : costs().pools()) left_.push_back(pool.devices);
  }

  ProofOutcome run() {
    if (numbers_.size() * static_cast<std::size_t>(question_.global_batch + 1) > kMostEntries ||
        !list_offers())
      return outcome_;
    fill_table();
    const double all = least(numbers_.size() - 1, question_.global_batch);
    outcome_.lower_bound = Seconds(std::min(all, known_));
    order_offers();
    outcome_.is_complete = combine(numbers_.size() - 1, question_.global_batch, 0);
    return outcome_;
  }

 private:
  const StageCosts& costs() const { return sums_.costs(); }

  // ---- Replicas ----

  struct Suffix {
    StageReplica replica;  // stages from the last to the first
    double time = 0;   // of the model: from the first micro-batch's arrival to the last one's end
    double alone = 0;  // the same of its slowest stage, with its update
  };

  bool list_offers();
  bool extend(Suffix& suffix, std::size_t end);
  bool put_in_front(Suffix& suffix, std::size_t first, std::size_t end, std::size_t unit);
  bool can_rest_be_done(std::int64_t samples) const;
  void offer(const Suffix& suffix, double model);
  double pass(std::size_t unit, std::size_t first, std::size_t end, std::int64_t batch) const {
    return sums_.work(unit, batch).pass(first, end);
  }

  // ---- The table ----

  double& least(std::size_t devices, std::int64_t samples) {
    return least_[devices * static_cast<std::size_t>(question_.global_batch + 1) +
                  static_cast<std::size_t>(samples)];
  }
  void fill_table();
  void order_offers();

  // ---- Plans ----

  bool combine(std::size_t devices, std::int64_t samples, std::size_t from);
  bool simulate_plan();
  void simulate_scheduled(StagePlan& plan, std::size_t from);
  double simulate_alone(Offer& offer);
  const ScheduleTimes& time_schedules(StageReplica replica);

  const ShapeSearch& search_;
  const StageSums& sums_;
  const StageEvaluator& evaluator_;
  const ProofQuestion& question_;
  double known_;  // seconds: slower plans are of no use
  ProofOutcome outcome_;
  std::int64_t passes_ = 0, stages_ = 0;

  DeviceNumbers numbers_;
  std::vector<int> left_;           // devices, while a replica is listed
  std::vector<double> rates_;       // device_rates
  std::vector<double> least_pass_;  // of the layers before one, at the micro-batch under way
  std::vector<Offer> offers_;
  std::vector<double> least_;
  std::vector<OfferClass> classes_;
  std::vector<std::size_t> chosen_;  // offers
  /// Of replicas with their neighbours in the same host or not.
  std::map<std::vector<std::int64_t>, ScheduleTimes> times_;
};

bool PlanProof::list_offers() {
  const std::int64_t all = question_.global_batch;
  for (const std::int64_t batch : costs().micro_batches()) {
    if (batch > all) break;
    least_pass_.assign(1, 0);
    for (std::size_t i = 0; i < costs().layers(); ++i) {
      double pass_of = kNoEnd;
      for (std::size_t u = 0; u < costs().units().size(); ++u)
        if (costs().knows(u, batch)) pass_of = std::min(pass_of, pass(u, i, i + 1, batch));
      least_pass_.push_back(least_pass_.back() + pass_of);
    }
    if (!(least_pass_.back() < kNoEnd)) continue;
    for (std::int64_t samples = batch; samples <= all; ++samples) {
      Suffix suffix{{{}, batch, samples}, 0};
      if (!extend(suffix, costs().layers())) return false;
    }
  }
  return true;
}

bool PlanProof::can_rest_be_done(std::int64_t samples) const {
  double done = 0;
  for (std::size_t pool = 0; pool < left_.size(); ++pool)
    if (left_[pool] > 0) done += left_[pool] * rates_[pool] * known_;
  return done * (1 + 1e-9) >= static_cast<double>(question_.global_batch - samples);
}

/// Puts every stage that ends at layer `end` in front. False: too many.
bool PlanProof::extend(Suffix& suffix, std::size_t end) {
  for (std::size_t unit = 0; unit < costs().units().size(); ++unit) {
    const std::vector<UnitPart>& parts = costs().units()[unit].parts;
    const auto is_left = [&](const UnitPart& part) { return part.devices <= left_[part.pool]; };
    if (!std::all_of(parts.begin(), parts.end(), is_left) ||
        !costs().knows(unit, suffix.replica.micro_batch))
      continue;
    for (const UnitPart& part : parts) left_[part.pool] -= part.devices;
    bool is_done = true;
    if (can_rest_be_done(suffix.replica.samples))
      for (std::size_t first = end; is_done && first-- > 0;)
        is_done = put_in_front(suffix, first, end, unit);
    for (const UnitPart& part : parts) left_[part.pool] += part.devices;
    if (!is_done) return false;
  }
  return true;
}

bool PlanProof::put_in_front(Suffix& suffix, std::size_t first, std::size_t end, std::size_t unit) {
  if (++stages_ > question_.most_stages) return false;
  const std::int64_t batch = suffix.replica.micro_batch, samples = suffix.replica.samples;
  const std::int64_t full = samples / batch, rest = samples % batch;
  if (rest > 0 && (!costs().knows(unit, rest) || (full == 1 && first > 0))) return true;
  const double one = pass(unit, first, end, batch);
  const double all =
      static_cast<double>(full) * one + (rest > 0 ? pass(unit, first, end, rest) : 0);
  const WorkSums& work = sums_.work(unit, batch);
  const double post = work.update[end] - work.update[first];
  std::vector<PlannedStage>& stages = suffix.replica.stages;
  double time = all;
  if (!stages.empty())
    time =
        std::max(all, one + suffix.time + search_.messages(unit, stages.back().unit, end, batch));
  if (all + post >= known_ || time + least_pass_[first] * (1 - 1e-12) >= known_) return true;
  const std::int64_t in_flight =
      std::min(full + (rest > 0 ? 1 : 0), static_cast<std::int64_t>(stages.size()) + 1);
  if (sums_.most_in_flight(unit, first, end, batch, in_flight) < in_flight) return true;
  stages.push_back({first, end, unit});
  const double before = std::exchange(suffix.time, time);
  const double alone = std::exchange(suffix.alone, std::max(suffix.alone, all + post));
  bool is_done = true;
  if (first > 0)
    is_done = extend(suffix, first);
  else if (time + post < known_)
    offer(suffix, std::max(time + post, suffix.alone));
  suffix.time = before;
  suffix.alone = alone;
  stages.pop_back();
  return is_done;
}

void PlanProof::offer(const Suffix& suffix, double model) {
  Offer made{suffix.replica};
  std::reverse(made.replica.stages.begin(), made.replica.stages.end());
  for (const PlannedStage& stage : made.replica.stages) {
    const StageUnit& unit = costs().units()[stage.unit];
    made.devices += numbers_.of(unit);
  }
  made.model = model;
  offers_.push_back(std::move(made));
}

/// Classes of offers, and what samples take on devices at least, in any of them.
void PlanProof::fill_table() {
  std::map<std::pair<std::size_t, std::int64_t>, OfferClass> classes;
  for (std::size_t i = 0; i < offers_.size(); ++i) {
    OfferClass& of = classes[{offers_[i].devices, offers_[i].replica.samples}];
    of.devices = offers_[i].devices;
    of.samples = offers_[i].replica.samples;
    of.offers.push_back(i);
  }
  for (auto& [key, of] : classes) {
    std::stable_sort(of.offers.begin(), of.offers.end(), [&](std::size_t a, std::size_t b) {
      return offers_[a].model < offers_[b].model;
    });
    classes_.push_back(std::move(of));
  }
  least_.assign(numbers_.size() * static_cast<std::size_t>(question_.global_batch + 1), kNoEnd);
  for (std::size_t devices = 0; devices < numbers_.size(); ++devices) {
    least(devices, 0) = 0;
    for (std::int64_t samples = 1; samples <= question_.global_batch; ++samples)
      for (const OfferClass& of : classes_) {
        if (of.samples > samples || !numbers_.is_within(of.devices, devices)) continue;
        const double time = std::max(offers_[of.offers.front()].model,
                                     least(devices - of.devices, samples - of.samples));
        least(devices, samples) = std::min(least(devices, samples), time);
      }
  }
}

/// Drops what the other devices make too slow; what may be in the fastest plans comes first.
void PlanProof::order_offers() {
  const auto with_rest = [&](const OfferClass& of) {
    return std::max(offers_[of.offers.front()].model,
                    least(numbers_.size() - 1 - of.devices, question_.global_batch - of.samples));
  };
  std::erase_if(classes_, [&](const OfferClass& of) { return with_rest(of) >= known_; });
  std::stable_sort(classes_.begin(), classes_.end(), [&](const OfferClass& a, const OfferClass& b) {
    return with_rest(a) < with_rest(b);
  });
}

/// Adds replicas for so many samples on these devices, in the order of their classes from `from`
/// on and, in a class, of their times. False: given up.
bool PlanProof::combine(std::size_t devices, std::int64_t samples, std::size_t from) {
  if (samples == 0) return simulate_plan();
  for (std::size_t c = from; c < classes_.size(); ++c) {
    const OfferClass& of = classes_[c];
    if (of.samples > samples || !numbers_.is_within(of.devices, devices)) continue;
    const std::size_t rest = devices - of.devices;
    const bool repeats = !chosen_.empty() && c == from;
    const auto at =
        repeats ? std::find(of.offers.begin(), of.offers.end(), chosen_.back()) : of.offers.begin();
    for (auto offer = at; offer != of.offers.end(); ++offer) {
      if (least(rest, samples - of.samples) >= known_ || offers_[*offer].model >= known_) break;
      if (simulate_alone(offers_[*offer]) >= known_) continue;
      if (passes_ > question_.most_passes) return false;
      chosen_.push_back(*offer);
      const bool is_done = combine(rest, samples - of.samples, c);
      chosen_.pop_back();
      if (!is_done) return false;
    }
  }
  return true;
}

/// Of all ways to have neighbours in one host or not; the update of the first stage follows.
double PlanProof::simulate_alone(Offer& offer) {
  if (offer.alone) return *offer.alone;
  const std::vector<PlannedStage>& stages = offer.replica.stages;
  std::vector<std::size_t> may_meet, must_meet;
  for (std::size_t s = 0; s + 1 < stages.size(); ++s) {
    const auto [in_one_host, apart] = search_.find_meeting(stages[s].unit, stages[s + 1].unit);
    if (in_one_host) (apart ? may_meet : must_meet).push_back(s + 1);
  }
  double best = kNoEnd;
  for (std::size_t mask = 0; mask < (std::size_t{1} << may_meet.size()); ++mask) {
    std::vector<bool> meets(stages.size(), false);
    for (const std::size_t s : must_meet) meets[s] = true;
    for (std::size_t i = 0; i < may_meet.size(); ++i) meets[may_meet[i]] = (mask >> i & 1) != 0;
    StageReplica placed = offer.replica;
    int host = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (!meets[s]) ++host;
      // Hosts of the cluster: pools may share them.
      placed.stages[s].host =
          host - costs().pools()[costs().units()[stages[s].unit].pool()].first_host;
    }
    const ScheduleTimes& times = time_schedules(std::move(placed));
    best = std::min(best, *std::min_element(times.begin(), times.end()));
  }
  const WorkSums& work = sums_.work(stages.front().unit, offer.replica.micro_batch);
  offer.alone = best + work.update[stages.front().end] - kClockRounding;
  return *offer.alone;
}

/// Seconds alone where the replica is, of each schedule; never: a link is missing.
const ScheduleTimes& PlanProof::time_schedules(StageReplica replica) {
  std::vector<std::int64_t> key = {replica.micro_batch, replica.samples};
  std::optional<int> before;
  for (const PlannedStage& stage : replica.stages) {
    const int host = stage.host + costs().pools()[costs().units()[stage.unit].pool()].first_host;
    for (const std::size_t number : {stage.end, stage.unit, std::size_t(before == host)})
      key.push_back(static_cast<std::int64_t>(number));
    before = host;
  }
  const auto [at, is_new] = times_.try_emplace(std::move(key));
  if (!is_new) return at->second;
  passes_ += static_cast<std::int64_t>(std::size(kTriedSchedules)) * count_passes(replica);
  for (std::size_t i = 0; i < std::size(kTriedSchedules); ++i) {
    replica.schedule = kTriedSchedules[i];
    const auto seconds = evaluator_.pipeline(replica);
    at->second[i] = seconds ? seconds->value : kNoEnd;
  }
  return at->second;
}

/// False: given up.
bool PlanProof::simulate_plan() {
  StagePlan plan;
  for (const std::size_t i : chosen_) plan.replicas.push_back(offers_[i].replica);
  return visit_places(std::move(plan), costs(), [&](StagePlan placed) {
    std::vector<Seconds> alone;
    for (const StageReplica& replica : placed.replicas) {
      const ScheduleTimes& times = time_schedules(replica);
      alone.emplace_back(*std::min_element(times.begin(), times.end()));
    }
    const auto least = evaluator_.least_step(placed, alone);
    if (least && least->value - kClockRounding < known_) simulate_scheduled(placed, 0);
    return passes_ <= question_.most_passes;
  });
}

/// In every schedule of every replica that is quick enough alone.
void PlanProof::simulate_scheduled(StagePlan& plan, std::size_t from) {
  if (from < plan.replicas.size()) {
    const ScheduleTimes& times = time_schedules(plan.replicas[from]);
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (times[i] >= known_) continue;
      plan.replicas[from].schedule = kTriedSchedules[i];
      simulate_scheduled(plan, from + 1);
    }
    return;
  }
  for (const StageReplica& replica : plan.replicas) passes_ += count_passes(replica);
  ++outcome_.simulated;
  auto price = evaluator_.price(plan);
  if (!price || !price->fits || price->step.value >= known_) return;
  known_ = price->step.value * kWorthFinding;
  outcome_.best = {plan, *std::move(price)};
}

}  // namespace

ProofOutcome prove_plans(const ShapeSearch& search, const StageEvaluator& evaluator,
                         const ProofQuestion& question) {
  return PlanProof(search, evaluator, question).run();
}

}  // namespace motley::search

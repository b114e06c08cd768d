#include "motley/search/spmd/spmd_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "motley/plan/shares.h"
#include "motley/search/spmd/device_sets.h"
#include "motley/search/spmd/hap_search.h"

namespace motley::search {
namespace {

/// An assumption about the parts of exchanges that are not hidden.
struct Opinion {
  double others = 1, gradients = 1;
};
constexpr Opinion kOpinions[] = {{1, 0.25}, {0.5, 0.25}, {1, 1}, {1, 0}};
constexpr std::size_t kLater = 2;  // number of these tried once there is a plan to compare with
/// Ratio to the best plan; closer results make the search try the others, too.
constexpr double kNear = 1.1;
constexpr int kMostLeftOut = 8;       // sets of devices, if there are many
constexpr int kRounds = 6;            // of ways and shares
constexpr double kSpare = 0.97;       // fraction of a memory to which plans are fitted
constexpr double kLeastMove = 0.002;  // of the step, to continue
/// Seconds per byte held, from negligible to dominant, in powers of ten.
constexpr double kLeastPrice = 1e-12;
constexpr int kPrices = 12;
constexpr int kFree = -1;  // no price
/// Ratio. Ways are not simulated if their compute alone exceeds the best step, or their exchanges
/// exceed it by this much, more than buckets save.
constexpr double kHopeless = 1.25;

class Search {
 public:
  explicit Search(SpmdStudy& study) : study_(study), question_(study.question()) {}

  Result<SpmdAnswer> run() {
    std::vector<DeviceSet> known;
    for (const std::vector<double>& shares : question_.shares) known.push_back(set_of(shares));
    MOTLEY_RETURN_IF_ERROR(search_among(known));
    MOTLEY_RETURN_IF_ERROR(
        search_among(find_device_sets(*question_.cluster, question_.devices, study_.speeds())));
    if (question_.devices.size() > kFewDevices) MOTLEY_RETURN_IF_ERROR(leave_out());
    if (!must_end() && question_.copies == 0) {
      MOTLEY_ASSIGN(const SpmdPlan hap, find_hap_plan(study_));
      ++answer_.considered;
      keep(hap);
    }
    if (question_.micro_batches > 1) return std::move(answer_);
    if (answer_.lacking_step.value >= known_step()) answer_.bounded = BoundedBatches::kOne;
    answer_.lower_bound = spmd_lower_bound(
        study_, std::min(Seconds(known_step()), question_.enough_bound), answer_.bounded);
    must_end();  // the bound may have been cut short
    return std::move(answer_);
  }

 private:
  /// Is there an answer, and no time left? Then marks the answer as ended.
  bool must_end() {
    const bool ends = answer_.considered > 0 && question_.deadline.has_passed();
    answer_.was_ended = answer_.was_ended || ends;
    return ends;
  }

  DeviceSet set_of(const std::vector<double>& shares) const {
    DeviceSet set;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      if (!(shares[i] > 0)) continue;
      set.devices.push_back(question_.devices[i]);
      set.shares.push_back(shares[i]);
    }
    return set;
  }

  Result<void> search_among(const std::vector<DeviceSet>& sets) {
    for (const auto& [devices, shares] : sets) {
      if (devices.size() < 2 || least_compute(devices) >= known_step()) continue;
      if (must_end() || lacks_in_all_) break;
      MOTLEY_RETURN_IF_ERROR(descend(devices, shares));
    }
    return {};
  }

  /// Leaves out devices of the best plan one by one, while that is faster.
  Result<void> leave_out() {
    for (int tried = 0; answer_.best && tried < kMostLeftOut;) {
      const DeviceSet all{answer_.best->devices, answer_.best->sharding.shares};
      const Seconds before = answer_.best->step;
      for (const DeviceSet& fewer : sets_without_one(*question_.cluster, all)) {
        if (tried++ == kMostLeftOut || answer_.best->step < before) break;
        MOTLEY_RETURN_IF_ERROR(search_among({fewer}));
      }
      if (answer_.best->step >= before) break;
    }
    return {};
  }

  Result<void> descend(const std::vector<DeviceId>& devices, std::vector<double> shares) {
    std::optional<Ways> best_here;
    std::vector<Opinion> opinions(std::begin(kOpinions), std::end(kOpinions));
    for (int round = 0; round < kRounds && !lacks_in_all_ && !must_end(); ++round) {
      if (!cuts_.insert({devices, cut_of(shares)}).second) break;
      MOTLEY_ASSIGN(std::optional<Ways> found, best_ways(devices, shares, opinions, best_here));
      if (!found) break;
      const SpmdPlan& plan = found->plan;
      const bool is_better = !best_here || plan.is_better_than(best_here->plan, kLeastMove);
      // The lack of memory may grow before it falls: heads and channels are few.
      if (!is_better && (plan.fits() || best_here->plan.fits())) break;
      if (plan.fits() && plan.step.value > known_step() * kHopeless) break;
      shares = plan.fits() ? evened(shares, plan.compute) : fitted(shares, plan);
      opinions = {found->opinion};  // also the best for nearby shares
      if (is_better) best_here = std::move(found);
    }
    return {};
  }

  using Cut = std::vector<std::vector<std::int64_t>>;
  /// Returns how shares cut every extent, and the keeper of whole values: all a plan depends on.
  Cut cut_of(const std::vector<double>& shares) const {
    const auto most = std::max_element(shares.begin(), shares.end());
    Cut cut = {{most - shares.begin()}};
    for (const auto& [extent, has_empty] : study_.choices(shares).space.has_empty)
      cut.push_back(plan::round_shares(shares, extent));
    return cut;
  }

  /// A plan with the opinion and the memory price for which its ways are optimal.
  struct Ways {
    SpmdPlan plan;
    Opinion opinion;
    int price = kFree;  // power of ten above the least
  };

  /// Returns the best ways for some shares, if any are worth a simulation; keeps the best overall.
  /// `before`: result for earlier shares; if that lacked memory and similar ones do, nothing else
  /// is tried.
  Result<std::optional<Ways>> best_ways(const std::vector<DeviceId>& devices,
                                        const std::vector<double>& shares,
                                        const std::vector<Opinion>& opinions,
                                        const std::optional<Ways>& before) {
    const SpmdChoices& choices = study_.choices(shares);
    SpmdPrices prices = study_.prices(choices.space, devices, shares);
    std::optional<Ways> best;
    std::vector<std::pair<synth::Sharding, bool>> seen;          // does it fit?
    Bytes least_lack(std::numeric_limits<std::int64_t>::max());  // of all devices together
    SpmdObjective objective;
    objective.states = plan::count_states(question_.lowering.recipe);
    objective.copies = question_.copies;
    // Returns whether it fits, as far as that matters; hopeless ways count as fitting.
    const auto consider = [&](const Opinion& opinion, int price) -> Result<bool> {
      objective.exchange = opinion.others;
      objective.gradient_exchange = opinion.gradients;
      objective.once = 1 / times();
      objective.seconds_per_byte = price == kFree ? 0 : kLeastPrice * std::pow(10.0, price);
      const ChoiceProblem& problem = choices.problem;
      const TableSolution solution = problem.solve(problem.costs(prices, objective));
      answer_.is_exact = answer_.is_exact && solution.relaxed == 0;
      synth::Sharding sharding = study_.sharding(choices, solution.choice, devices, shares);
      for (const auto& [known, fits] : seen)
        if (known == sharding) return fits;
      bool& fits = seen.emplace_back(sharding, true).second;
      if (is_hopeless(add_up(study_.graph(), choices.space, prices, sharding))) return true;
      ++answer_.considered;
      MOTLEY_ASSIGN(SpmdPlan plan, priced(devices, std::move(sharding)));
      keep(plan);
      fits = plan.fits();
      least_lack = std::min(least_lack, lack_in_all(plan));
      if (!best || plan.is_better_than(best->plan)) best = Ways{std::move(plan), opinion, price};
      return fits;
    };
    if (before && !before->plan.fits()) {
      MOTLEY_ASSIGN(const bool fits, consider(before->opinion, before->price));
      if (!fits || must_end()) return best;
    }
    bool fits_freely = false;
    for (std::size_t i = 0; i < opinions.size(); ++i) {
      if (must_end()) return best;
      if (i == kLater && (!fits_freely || best->plan.step.value > known_step() * kNear)) break;
      MOTLEY_ASSIGN(const bool fits, consider(opinions[i], kFree));
      fits_freely = fits_freely || fits;
    }
    if (!best || fits_freely || must_end()) return best;
    // Finds the least memory price at which something fits, if it does at the highest.
    int too_low = kFree, enough = kPrices - 1;
    MOTLEY_ASSIGN(const bool may_fit, consider(opinions[0], enough));
    while (may_fit && too_low + 1 < enough && !must_end()) {
      const int price = too_low + (enough - too_low) / 2;
      MOTLEY_ASSIGN(const bool fits, consider(opinions[0], price));
      (fits ? enough : too_low) = price;
    }
    for (std::size_t i = 1; i < opinions.size() && best->plan.fits() && !must_end(); ++i)
      MOTLEY_RETURN_IF_ERROR(consider(opinions[i], enough));
    lacks_in_all_ = !may_fit && least_lack.value > 0 && devices.size() == question_.devices.size();
    return best;
  }

  /// Prices a sharding; gathers parameters again for each pass if it lacks memory.
  Result<SpmdPlan> priced(const std::vector<DeviceId>& devices, synth::Sharding sharding) {
    MOTLEY_ASSIGN(SpmdPlan plan, price_sharding(study_, devices, std::move(sharding)));
    if (!plan.fits()) return gather_again(study_, std::move(plan));
    return plan;
  }

  /// Returns the total lack of memory: if positive, neither other shares nor fewer devices help.
  Bytes lack_in_all(const SpmdPlan& plan) const {
    Bytes lack;
    for (std::size_t rank = 0; rank < plan.devices.size(); ++rank) {
      const auto memory = study_.device(plan.devices[rank]).room();
      if (!memory) return {};
      lack += plan.peaks[rank] - *memory;
    }
    return lack;
  }

  /// Returns the least known step; infinity if none is known.
  double known_step() const {
    const double before = question_.known_step.value;
    return answer_.best ? std::min(before, answer_.best->step.value) : before;
  }

  /// Returns the compute seconds of these devices if everything were split in proportion to speed.
  double least_compute(const std::vector<DeviceId>& devices) const {
    double speed = 0;  // steps per second
    for (const DeviceId id : devices) speed += 1 / study_.whole_step(study_.kinds().of(id)).total;
    return times() / speed;
  }

  /// Number of repetitions; gradients are exchanged only once.
  double times() const { return static_cast<double>(question_.micro_batches); }

  /// Is it too slow to be worth a simulation?
  bool is_hopeless(const SpmdTotals& totals) const {
    const double compute = *std::max_element(totals.compute.begin(), totals.compute.end());
    const double exchange = times() * (totals.exchange - totals.once) + totals.once;
    return std::max(times() * compute, exchange / kHopeless) >= known_step();
  }

  void keep(const SpmdPlan& plan) {
    if (plan.fits() && plan.step >= question_.known_step) return;
    if (!plan.fits()) answer_.lacking_step = std::min(answer_.lacking_step, plan.step);
    std::optional<SpmdPlan>& best = plan.fits() ? answer_.best : answer_.nearest;
    if (!best || plan.is_better_than(*best)) best = plan;
  }

  /// Reduces shares of devices that lack memory, in proportion, until a cut changes.
  std::vector<double> fitted(std::vector<double> shares, const SpmdPlan& plan) const {
    constexpr int kMostTimes = 20;
    const Cut cut = cut_of(shares);
    for (int times = 0; times < kMostTimes && cut_of(shares) == cut; ++times)
      for (std::size_t rank = 0; rank < shares.size(); ++rank)
        if (const auto memory = study_.device(plan.devices[rank]).room())
          shares[rank] *= std::min(1.0, kSpare * static_cast<double>(memory->value) /
                                            static_cast<double>(plan.peaks[rank].value));
    return shares;
  }

  /// Returns shares that equalise compute, if it grew with the share.
  static std::vector<double> evened(std::vector<double> shares,
                                    const std::vector<double>& compute) {
    const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (std::size_t i = 0; i < shares.size(); ++i)
      shares[i] = shares[i] / total / std::max(compute[i], 1e-12);
    return shares;
  }

  SpmdStudy& study_;
  const SpmdQuestion& question_;
  SpmdAnswer answer_;
  std::set<std::pair<std::vector<DeviceId>, Cut>> cuts_;  // already tried
  bool lacks_in_all_ = false;
};

}  // namespace

Result<SpmdAnswer> find_spmd_plan(SpmdStudy& study) { return Search(study).run(); }

}  // namespace motley::search

#include "motley/search/stage_planner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "motley/base/text.h"
#include "motley/search/finer_cuts.h"
#include "motley/search/paired_stages.h"
#include "motley/search/portfolio.h"
#include "motley/search/split/water_filling.h"
#include "motley/search/spmd/spmd_planner.h"
#include "motley/search/stage_recompute.h"
#include "motley/search/stages/costs/merged_layers.h"
#include "motley/search/stages/costs/stage_sums.h"
#include "motley/search/stages/moved_cuts.h"
#include "motley/search/stages/stage_lag.h"
#include "motley/search/stages/stage_search.h"
#include "motley/search/tied_weights.h"

namespace motley::search {

namespace {

constexpr int kMemoryRounds = 4;          // of planning again with less memory
constexpr std::size_t kMostPrograms = 4;  // plans of a round, by their programs
/// What several devices exchange in one micro-batch alone is partly hidden beside others.
constexpr double kHiddenAtMost = 0.03;  // of the step
/// Of others beside the best, in its time.
constexpr double kWorthPricing = 1.3;
constexpr int kMostRepairs = 3;  // of what lacks memory
/// Part of the step for which the busiest stage waits.
constexpr double kWorthFilling = 0.03;
/// Of the best plan, that may be improved: with more memory used, if so much of it is left; with
/// gradients of weights put off.
constexpr double kWorthUsing = 1.05, kMuchLeft = 0.01, kWorthPuttingOff = 1.02,
                 kWorthPuttingTurnsOff = 1.1;
constexpr std::size_t kMostPutOff = 2;
/// Plans whose passes are paired, by their time beside the best one's, and how many.
constexpr double kWorthPairingBeside = 1.1;
constexpr std::size_t kMostPaired = 2;
/// Plans of more devices do not share states: each of these has a program of its own then.
constexpr std::size_t kMostSharing = 64;
constexpr int kMostShares = 3;  // of one plan
/// Layers are cut for the search where the best plan is so far from the bound.
constexpr double kWorthRefining = 1.05;
/// Plans whose cuts are moved into layers, their time beside the best's, and by how much that has
/// to be quicker for a program.
constexpr std::size_t kMostRefined = 3;
constexpr double kWorthRefiningCuts = 1.1, kWorthRepricing = 2e-3;
const CutMoves kPieceMoves{{8, 4, 2, 1}, 3, 1e-4, 200'000};
/// By how much quicker what lacks memory has to be, for which it is planned again with less.
constexpr double kWorthPlanningAgain = 0.02;

class StagePlanning {
 public:
  StagePlanning(const PlannerInputs& inputs, const plan::Problem& problem, ModelStageCosts& costs,
                const StageFinder& find, plan::PlanOutcome& outcome)
      : inputs_(inputs), problem_(problem), costs_(costs), find_(find), outcome_(outcome) {}

  Result<void> run() {
    MOTLEY_RETURN_IF_ERROR(note_bound());
    MOTLEY_RETURN_IF_ERROR(search());
    if (costs_.offer_mixed()) {
      apart_.reset();
      taken_.clear();
      MOTLEY_RETURN_IF_ERROR(search());
    }
    if (!is_best_) outcome_.why.insert(outcome_.why.end(), refused_.begin(), refused_.end());
    std::stable_sort(
        outcome_.runner_ups.begin(), outcome_.runner_ups.end(),
        [](const plan::RunnerUp& a, const plan::RunnerUp& b) { return a.step < b.step; });
    return {};
  }

 private:
  /// Among the units that are offered.
  Result<void> search() {
    MOTLEY_RETURN_IF_ERROR(plan_in_rounds(kMemoryRounds));
    // What would fit if all forward passes were done again, and quick if none were.
    costs_.recompute(Recompute::kAll, Recompute::kNothing);
    MOTLEY_RETURN_IF_ERROR(plan_in_rounds(1));
    if (!outcome_.plan) {
      costs_.recompute(Recompute::kAll, Recompute::kAll);
      MOTLEY_RETURN_IF_ERROR(plan_in_rounds(kMemoryRounds));
    }
    std::vector<Taken> whole;
    if (find_.cuts == StageCuts::kRefined) {
      // Plans of whole layers come first, as if there were no others: so none is worse for these.
      MOTLEY_RETURN_IF_ERROR(keep_tied());
      MOTLEY_RETURN_IF_ERROR(put_weights_off());
      whole = std::exchange(taken_, {});
      MOTLEY_RETURN_IF_ERROR(plan_pieces());
      MOTLEY_RETURN_IF_ERROR(refine_cuts(whole));
    }
    MOTLEY_RETURN_IF_ERROR(plan_shared_states());
    MOTLEY_RETURN_IF_ERROR(keep_tied());
    MOTLEY_RETURN_IF_ERROR(put_weights_off());
    taken_.insert(taken_.begin(), whole.begin(), whole.end());
    MOTLEY_RETURN_IF_ERROR(begin_one_more());
    return pair_tasks();
  }

  /// A plan that fits.
  struct Taken {
    PricedStagePlan found;
    plan::Plan plan;
    Seconds step;
  };
  /// By replica, stage and its layers.
  using Again = std::vector<std::vector<std::vector<Recompute>>>;

  Result<void> plan_in_rounds(int rounds) {
    if (find_.cuts != StageCuts::kAtPieces) return plan_in_rounds(rounds, costs_.pieces().first);
    std::vector<std::size_t> all(costs_.layers() + 1);
    std::iota(all.begin(), all.end(), std::size_t{0});
    return plan_in_rounds(rounds, all);
  }

  /// `cuts`: of pieces, between which stages are.
  Result<void> plan_in_rounds(int rounds, const std::vector<std::size_t>& cuts) {
    sums_.emplace(costs_);
    for (int round = 0; round < rounds; ++round) {
      MOTLEY_ASSIGN(const StageOutcome found, find_between(cuts));
      if (!found.best) {
        for (const std::string& why : found.why)
          if (!outcome_.plan && round == 0) refused_.insert("in stages: " + why);
        break;
      }
      lacking_.clear();
      is_worth_more_ = false;
      // Those of further searches last, so that the others are considered as without them.
      for (const bool further : {false, true})
        MOTLEY_RETURN_IF_ERROR(consider_best(found, further, round + 1 == rounds));
      if (lacking_.empty() || (outcome_.plan && !is_worth_more_)) break;
      for (const auto& [pool, part] : lacking_) costs_.take_memory(pool, part);
    }
    return {};
  }

  /// Of the plans that a further search found, or the first one: the best, and those near to it, or
  /// all. Interleaved ones come last, so that the others are considered as without them.
  Result<void> consider_best(const StageOutcome& found, bool further, bool all) {
    std::vector<const PricedStagePlan*> plans;  // the best first
    for (std::size_t i = 0; i <= found.runner_ups.size(); ++i)
      if (const auto& each = i == 0 ? *found.best : found.runner_ups[i - 1];
          each.is_further == further)
        plans.push_back(&each);
    for (const bool interleaved : {false, true}) {
      std::size_t tried = 0;
      for (const PricedStagePlan* each : plans) {
        if (is_interleaved(each->plan) != interleaved || tried++ >= kMostPrograms) continue;
        const bool is_first = !interleaved && tried == 1;
        if (is_first || all || each->price.step <= plans.front()->price.step * kWorthPricing)
          MOTLEY_RETURN_IF_ERROR(consider(*each));
      }
    }
    return {};
  }

  /// Plans whose cuts are some of these, which are of pieces.
  Result<StageOutcome> find_between(const std::vector<std::size_t>& cuts) const {
    const MergedLayers layers(costs_, cuts, MergedLayers::Tied::kOnce);
    MOTLEY_ASSIGN(
        StageOutcome found,
        find_.find({.costs = &layers, .global_batch = problem_.global_batch, .is_bounded = false},
                   costs_.pieces()));
    const auto restore = [&](PricedStagePlan& priced) {
      for (StageReplica& replica : priced.plan.replicas)
        for (PlannedStage& stage : replica.stages) {
          stage.first = cuts[stage.first];
          stage.end = cuts[stage.end];
        }
    };
    if (found.best) restore(*found.best);
    for (PricedStagePlan& other : found.runner_ups) restore(other);
    return found;
  }

  /// Where nothing fits, or something is done again to fit: replicas that fit if they share states.
  Result<void> plan_shared_states() {
    if (!lacks_memory() || plan::count_states(problem_.recipe) == 0 ||
        problem_.devices.size() < 2 || problem_.devices.size() > kMostSharing ||
        !problem_.stages.empty())
      return {};
    costs_.recompute(Recompute::kNothing, Recompute::kNothing);
    costs_.share_states();
    is_sharing_ = true;
    const auto planned = plan_in_rounds(1);
    is_sharing_ = false;
    return planned;
  }

  /// Does the best plan do something again, or is there none?
  bool lacks_memory() const {
    return !outcome_.plan ||
           std::any_of(outcome_.plan->replicas.begin(), outcome_.plan->replicas.end(),
                       [](const plan::Replica& replica) {
                         return std::any_of(
                             replica.regions.begin(), replica.regions.end(),
                             [](const plan::Region& region) { return !region.recomputes.empty(); });
                       });
  }

  /// Where layers are few or large: plans whose cuts lie in them, too.
  Result<void> plan_pieces() {
    if (problem_.devices.size() < 2 ||
        (outcome_.plan && outcome_.predicted_step <= costs_.least_step() * kWorthRefining))
      return {};
    const std::vector<std::size_t> cuts =
        find_finer_cuts(costs_, costs_.pieces(), problem_.devices.size());
    if (cuts.empty()) return {};
    costs_.recompute(lacks_memory() ? Recompute::kAll : Recompute::kNothing, Recompute::kNothing);
    return plan_in_rounds(outcome_.plan ? 1 : kMemoryRounds, cuts);
  }

  /// Cuts of the best plans move to pieces of the layers beside them where that is quicker.
  Result<void> refine_cuts(std::vector<Taken> best) {
    if (!outcome_.plan || costs_.layers() + 1 == costs_.pieces().first.size()) return {};
    best.insert(best.end(), taken_.begin(), taken_.end());
    std::stable_sort(best.begin(), best.end(),
                     [](const Taken& a, const Taken& b) { return a.step < b.step; });
    const Seconds known = outcome_.predicted_step;
    costs_.recompute(lacks_memory() ? Recompute::kAll : Recompute::kNothing, Recompute::kNothing);
    sums_.emplace(costs_);
    const StageEvaluator evaluator(*sums_);
    std::vector<StagePlan> seen;
    for (const Taken& taken : best) {
      if (seen.size() >= kMostRefined || taken.step > known * kWorthRefiningCuts) break;
      const StagePlan& plan = taken.found.plan;
      if (std::find(seen.begin(), seen.end(), plan) != seen.end()) continue;
      seen.push_back(plan);
      auto price = evaluator.price(plan);
      if (!price) continue;
      PricedStagePlan moved{plan, *std::move(price)};
      const Seconds before = moved.price.step;
      move_cuts(evaluator, kPieceMoves, moved);
      // As much less as the simulator says, of what the program takes.
      if (moved.price.step.value * taken.step.value >=
          before.value * outcome_.predicted_step.value * (1 - kWorthRepricing))
        continue;
      MOTLEY_RETURN_IF_ERROR(price_program(moved));
    }
    return {};
  }

  /// However it is cut and shared: an operator's work is on some devices.
  Result<void> note_bound() {
    const Seconds least = costs_.least_step();
    if (!outcome_.plan) {
      outcome_.lower_bound = least;
      return {};
    }
    // What was the best of splits may not be that of these plans, too.
    const bool was_ended = outcome_.reason == plan::Reason::kLimit;
    return set_bound(std::min(outcome_.lower_bound, least), was_ended, outcome_);
  }

  plan::Plan translate(const PricedStagePlan& found, const Again& again) const {
    plan::Plan plan = plan::blank_plan(problem_);
    for (std::size_t r = 0; r < found.plan.replicas.size(); ++r) {
      const StageReplica& replica = found.plan.replicas[r];
      plan::Replica made;
      made.samples = replica.samples;
      made.micro_batches = static_cast<std::int64_t>(micro_batch_sizes(replica).size());
      for (std::size_t s = 0; s < replica.stages.size(); ++s) {
        const PlannedStage& stage = replica.stages[s];
        plan::Region region = costs_.region(stage, again[r][s]);
        region.speed = costs_.speed(stage, replica.micro_batch);
        if (replica.stages.size() > 1) {
          region.ahead = found.price.spans[r][s].in_flight;
          region.lag = find_lag(*sums_, replica, s);
        }
        made.regions.push_back(std::move(region));
      }
      plan.replicas.push_back(std::move(made));
    }
    compare_speeds(plan);
    return plan;
  }

  /// Beside the fastest, to two digits; without stages they say nothing.
  static void compare_speeds(plan::Plan& plan) {
    double fastest = 0;
    for (const plan::Replica& replica : plan.replicas)
      for (const plan::Region& region : replica.regions) fastest = std::max(fastest, region.speed);
    for (plan::Replica& replica : plan.replicas)
      for (plan::Region& region : replica.regions)
        region.speed = replica.regions.size() > 1
                           ? std::max(0.01, std::round(100 * region.speed / fastest) / 100)
                           : 1;
  }

  /// Will it take longer than what is known? What several devices exchange may be hidden in part.
  bool is_hopeless(const PricedStagePlan& found) const {
    if (!outcome_.plan) return false;
    double all = 0, shared = 0;  // devices
    for (const StageReplica& replica : found.plan.replicas)
      for (const PlannedStage& stage : replica.stages) {
        const int degree = costs_.units()[stage.unit].degree();
        all += degree;
        if (degree > 1) shared += degree;
      }
    return found.price.step >= outcome_.predicted_step * (1 + kHiddenAtMost * shared / all);
  }

  /// All stages of some devices.
  struct SeatAt {
    const StageReplica& replica;
    const PlannedStage& stage;      ///< the first of them
    std::vector<KeptLayer> layers;  ///< of all; what is done again of them may be changed
  };
  /// Calls `visit(SeatAt&)` for the devices of each stage or stages, in the order of a plan's
  /// ranks, until that is false. Was it never?
  template <typename Visit>
  bool for_each_seat(const PricedStagePlan& found, Again& again, const Visit& visit) const {
    for (std::size_t r = 0; r < found.plan.replicas.size(); ++r) {
      const StageReplica& replica = found.plan.replicas[r];
      for (const std::vector<std::size_t>& stages : stages_by_seat(replica)) {
        SeatAt at{replica, replica.stages[stages.front()], {}};
        for (const std::size_t s : stages) {
          const KeptSamples samples{found.price.spans[r][s].in_flight * replica.micro_batch,
                                    replica.micro_batch};
          const auto layers = kept_layers(costs_, replica.stages[s], samples, again[r][s]);
          at.layers.insert(at.layers.end(), layers.begin(), layers.end());
        }
        const bool goes_on = visit(at);
        auto layer = at.layers.begin();
        for (const std::size_t s : stages)
          for (Recompute& how : again[r][s]) how = (layer++)->again;
        if (!goes_on) return false;
      }
    }
    return true;
  }

  /// Of the one of a stage's devices that has least, which is what bytes of unlike ones are beside.
  std::optional<Bytes> memory_of(const PlannedStage& stage) const {
    std::optional<Bytes> least;
    for (const DeviceId device : costs_.devices(stage))
      if (const auto memory = problem_.cluster->device(device).room())
        least = std::min(least.value_or(*memory), *memory);
    return least;
  }

  /// What its fullest device holds, beside the same.
  double peak(const PlannedStage& stage, const plan::Price& price, std::size_t first_rank) const {
    double most = 0;
    const std::vector<double> scales = costs_.scales(stage.unit);
    for (std::size_t i = 0; i < scales.size(); ++i)
      most = std::max(most, scales[i] * static_cast<double>(price.peaks[first_rank + i].value));
    return most;
  }

  double held(const SeatAt& at) const {
    return static_cast<double>(held_by(costs_, at.layers).value);
  }

  /// What programs hold on devices of the stage's pool beside what their layers do by themselves:
  /// the least that was seen, as a part of that or as bytes more.
  struct Beyond {
    double part = 1, bytes = 0;
  };
  double beyond(const SeatAt& at) const {
    const auto known = beyond_.find(pools_of(at.stage));
    if (known == beyond_.end()) return 1;
    return std::min(known->second.part, 1 + known->second.bytes / held(at));
  }

  void learn_memory(const PricedStagePlan& found, const plan::Price& price, Again& again) {
    std::size_t rank = 0;
    for_each_seat(found, again, [&](const SeatAt& at) {
      const double most = peak(at.stage, price, rank);
      rank += costs_.devices(at.stage).size();
      const Beyond seen{std::max(1.0, most / held(at)), std::max(0.0, most - held(at))};
      const auto [known, is_new] = beyond_.try_emplace(pools_of(at.stage), seen);
      known->second.part = std::min(known->second.part, seen.part);
      known->second.bytes = std::min(known->second.bytes, seen.bytes);
      return true;
    });
  }

  /// As little is done again as what layers hold leaves room for; `lacking`: what there is too
  /// little of if nothing is. False if nothing makes it fit.
  bool save_by_layers(const PricedStagePlan& found, std::map<DeviceId, Bytes>& lacking,
                      Again& again) const {
    return for_each_seat(found, again, [&](SeatAt& at) {
      const std::optional<Bytes> memory = memory_of(at.stage);
      const double factor = beyond(at), all = factor * held(at);
      if (!memory || all <= static_cast<double>(memory->value)) return true;
      const double missing = all - static_cast<double>(memory->value);
      const std::vector<DeviceId> devices = costs_.devices(at.stage);
      const std::vector<double> scales = costs_.scales(at.stage.unit);
      for (std::size_t i = 0; i < devices.size(); ++i)
        lacking[devices[i]] = Bytes(std::llround(missing / scales[i]));
      return save_memory(costs_, Bytes(std::llround(missing / factor)), at.layers);
    });
  }

  /// By seat, what its devices do in a step, what they do again included.
  std::vector<double> find_busy(const PricedStagePlan& found, Again& again) const {
    std::vector<double> busy;
    for_each_seat(found, again, [&](const SeatAt& at) {
      double pass = 0;
      for (const Recompute how : kRecomputes) {
        std::map<std::size_t, std::vector<LayerWork>> works;  // by unit
        for (const KeptLayer& layer : at.layers) {
          if (layer.again != how) continue;
          std::vector<LayerWork>& work = works[layer.unit];
          if (work.empty()) work = costs_.work_of(layer.unit, at.replica.micro_batch, how);
          for (std::size_t p = layer.first; p < layer.end; ++p)
            pass += (work[p].forward + work[p].backward).value;
        }
      }
      busy.push_back(pass * static_cast<double>(at.replica.samples) /
                     static_cast<double>(at.replica.micro_batch));
      return true;
    });
    return busy;
  }

  /// No step is shorter than what some of its devices do.
  bool is_hopeless(const PricedStagePlan& found, Again& again) const {
    if (!outcome_.plan) return false;
    const std::vector<double> busy = find_busy(found, again);
    return *std::max_element(busy.begin(), busy.end()) >=
           outcome_.predicted_step.value * (1 + kHiddenAtMost);
  }

  /// Nothing, unless stages that are given say so.
  Again nothing_again(const StagePlan& plan) const {
    Again again;
    for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
      std::vector<std::vector<Recompute>>& stages = again.emplace_back();
      for (std::size_t s = 0; s < plan.replicas[r].stages.size(); ++s) {
        const PlannedStage& stage = plan.replicas[r].stages[s];
        stages.emplace_back(costs_.pieces().parts(stage.first, stage.end).size(),
                            is_given_again(r, s) ? Recompute::kAll : Recompute::kNothing);
      }
    }
    return again;
  }

  /// Prices a plan by its program, if there is hope, and takes it if it is the best, with as much
  /// done again as it needs to fit; if it does not, notes what it lacks.
  Result<void> consider(const PricedStagePlan& found) {
    return is_hopeless(found) ? Result<void>() : price_program(found);
  }

  Result<void> price_program(const PricedStagePlan& found) {
    if (is_sharing_) return share_states(found);
    Again again = nothing_again(found.plan);
    std::map<DeviceId, Bytes> lacking;  // with nothing done again
    double step = found.price.step.value;
    const bool may_fit = save_by_layers(found, lacking, again);
    if (!lacking.empty()) MOTLEY_RETURN_IF_ERROR(share_states(found));
    if (!may_fit) return give_up(found, lacking, step);
    if (!lacking.empty() && is_hopeless(found, again)) return give_up(found, lacking, step);
    for (int tried = 0; tried <= kMostRepairs; ++tried) {
      const plan::Plan apart = translate(found, again);
      plan::Plan plan = give_tied(apart);
      if (std::find(seen_.begin(), seen_.end(), plan) != seen_.end()) return {};
      seen_.push_back(plan);
      auto price = inputs_.evaluator->price(plan);
      if (!price && plan != apart) price = inputs_.evaluator->price(plan = apart);
      if (!price) {
        // Not every graph can be cut into micro-batches, nor what is split so for each number of
        // them.
        const std::set<std::string> codes = {"synth.accumulation", "synth.unsupported",
                                             "plan.stale"};
        if (!codes.contains(price.error().code)) return tl::make_unexpected(price.error());
        // In so many micro-batches or so many others: once is enough.
        if (refused_codes_.insert(price.error().code).second)
          refused_.insert("no stages: " + price.error().message);
        return {};
      }
      ++outcome_.considered;
      learn_memory(found, *price, again);
      const std::map<DeviceId, Bytes> missing = find_missing(plan, *price);
      if (missing.empty()) {
        MOTLEY_RETURN_IF_ERROR(take(found, plan, *price));
        if (outcome_.plan == plan) apart_ = {found, apart, price->step};
        return use_what_is_left(found, *price, again);
      }
      if (lacking.empty()) {
        step = price->step.value;
        lacking = missing;
        MOTLEY_RETURN_IF_ERROR(share_states(found));
      }
      if (outcome_.plan && price->step >= outcome_.predicted_step) break;
      if (!save(found, missing, again)) break;
    }
    return give_up(found, lacking, step);
  }

  /// A plan whose replicas lack memory, with nothing done again and the states of what several of
  /// them hold shared: at first as memories are, then as what is left of these says.
  Result<void> share_states(const PricedStagePlan& found) {
    plan::Plan plan = give_tied(translate(found, nothing_again(found.plan)));
    const int states = plan::count_states(problem_.recipe);
    std::vector<DeviceId> devices;
    for (const plan::Member& member : plan::members(plan)) devices.push_back(member.device);
    if (plan.replicas.size() < 2 || states == 0 || devices.size() > kMostSharing) return {};
    double bytes = 0;  // of all states
    for (const ValueId id : values_with_role(*inputs_.graph, graph::ValueRole::kParameter))
      bytes += states * static_cast<double>(graph::value_bytes(inputs_.graph->value(id), {}));
    std::vector<double> shares;
    for (const DeviceId device : devices) {
      const auto memory = problem_.cluster->device(device).room();
      if (!memory) return {};
      shares.push_back(static_cast<double>(memory->value));
    }
    for (int tried = 0; tried < kMostShares; ++tried) {
      const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
      if (!(all > 0)) return {};
      for (std::size_t i = 0; i < devices.size(); ++i)
        plan.state_shares[devices[i]] = std::round(1000 * shares[i] / all) / 1000;
      if (std::find(seen_.begin(), seen_.end(), plan) != seen_.end()) return {};
      seen_.push_back(plan);
      const auto price = inputs_.evaluator->price(plan);
      if (!price) return {};  // as without, which says why
      ++outcome_.considered;
      if (find_missing(plan, *price).empty()) return take(found, plan, *price);
      if (outcome_.plan && price->step >= outcome_.predicted_step) return {};
      for (std::size_t i = 0; i < devices.size(); ++i) {
        const Bytes left = *problem_.cluster->device(devices[i]).room() - price->peaks[i];
        shares[i] = std::max(0.0, bytes * shares[i] / all + static_cast<double>(left.value));
      }
    }
    return {};
  }

  /// The next search may use less memory; what is interleaved does not count for that, so without
  /// it all would be the same.
  Result<void> give_up(const PricedStagePlan& found, const std::map<DeviceId, Bytes>& lacking,
                       double step) {
    if (is_interleaved(found.plan) && problem_.stages.empty()) return {};
    note_lacking(found.plan, lacking);
    if (!problem_.stages.empty())
      for (const auto& [device, bytes] : lacking)
        refused_.insert(fmt::format("{} has {} too little memory for its stage",
                                    problem_.cluster->device(device).name, format_bytes(bytes)));
    const double known = outcome_.plan ? outcome_.predicted_step.value : INFINITY;
    is_worth_more_ = is_worth_more_ || step < known * (1 - kWorthPlanningAgain);
    return {};
  }

  /// Do stages that are given say so?
  bool is_given_again(std::size_t replica, std::size_t stage) const {
    return !problem_.stages.empty() && problem_.stages[replica].stages[stage].recomputes;
  }

  /// By device that has too little memory, how much.
  std::map<DeviceId, Bytes> find_missing(const plan::Plan& plan, const plan::Price& price) const {
    std::map<DeviceId, Bytes> missing;
    const std::vector<plan::Member> members = plan::members(plan);
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      const auto memory = problem_.cluster->device(members[rank].device).room();
      if (memory && price.peaks[rank] > *memory)
        missing[members[rank].device] = price.peaks[rank] - *memory;
    }
    return missing;
  }

  void note_lacking(const StagePlan& plan, const std::map<DeviceId, Bytes>& missing) {
    for (const auto& [device, bytes] : missing) {
      const auto memory = static_cast<double>(problem_.cluster->device(device).room()->value);
      const double part = memory / (memory + static_cast<double>(bytes.value)) * 0.98;
      const auto [known, is_new] = lacking_.try_emplace(pool_of(plan, device), part);
      known->second = std::min(known->second, part);
    }
  }

  std::vector<std::size_t> pools_of(const PlannedStage& stage) const {
    std::vector<std::size_t> pools;
    for (const UnitPart& part : costs_.units()[stage.unit].parts) pools.push_back(part.pool);
    return pools;
  }

  /// With a weight of two stages in the first of them.
  plan::Plan give_tied(const plan::Plan& plan) const {
    return costs_.tied() ? give_tied_weights(*inputs_.graph, plan) : plan;
  }

  /// What a plan that fits leaves of memory, if that is much, has room for what is done again.
  Result<void> use_what_is_left(const PricedStagePlan& found, plan::Price price, Again& again) {
    if (!problem_.stages.empty()) return {};  // they say what is done again
    for (int tried = 0; tried < kMostRepairs; ++tried) {
      if (price.step > outcome_.predicted_step * kWorthUsing) return {};
      const std::vector<double> before = find_busy(found, again);
      if (!use_left_memory(found, price, again)) return {};
      // What waits for the busiest of those that do less now gains what it does, if not more of
      // them in turns.
      const std::vector<double> after = find_busy(found, again);
      double gain = 0;
      for (std::size_t seat = 0; seat < after.size(); ++seat)
        gain = std::max(gain, before[seat] - after[seat]);
      if (price.step.value - gain >= outcome_.predicted_step.value) return {};
      const plan::Plan apart = translate(found, again), plan = give_tied(apart);
      auto other = inputs_.evaluator->price(plan);
      if (!other || !find_missing(plan, *other).empty()) return {};
      ++outcome_.considered;
      price = *std::move(other);
      MOTLEY_RETURN_IF_ERROR(take(found, plan, price));
      if (outcome_.plan == plan) apart_ = {found, apart, price.step};
    }
    return {};
  }

  bool use_left_memory(const PricedStagePlan& found, const plan::Price& price, Again& again) const {
    std::size_t rank = 0;
    bool is_less = false;
    for_each_seat(found, again, [&](SeatAt& at) {
      const std::optional<Bytes> memory = memory_of(at.stage);
      const double left =
          memory ? static_cast<double>(memory->value) - peak(at.stage, price, rank) : 0;
      rank += costs_.devices(at.stage).size();
      if (!memory || left < kMuchLeft * static_cast<double>(memory->value)) return true;
      const Bytes spare(std::llround(left / beyond(at)));
      is_less = use_memory(costs_, spare, at.layers) || is_less;
      return true;
    });
    return is_less;
  }

  /// Where the busiest stage of the best plans waits, gradients of weights may fill that.
  Result<void> put_weights_off() {
    if (!is_best_) return {};
    std::stable_sort(taken_.begin(), taken_.end(),
                     [](const Taken& a, const Taken& b) { return a.step < b.step; });
    const std::vector<Taken> taken = taken_;
    // Interleaved or not: how many, and the fastest.
    std::array<std::pair<std::size_t, Seconds>, 2> tried;
    for (const auto& [found, given, step] : taken) {
      const bool is_turned = is_interleaved(found.plan);
      auto& [count, least] = tried[is_turned ? 1 : 0];
      if (count == 0) least = is_turned ? taken.front().step : step;
      if (step > least * (is_turned ? kWorthPuttingTurnsOff : kWorthPuttingOff)) continue;
      if (count++ >= kMostPutOff) continue;
      double busiest = 0;
      plan::Plan plan = given;
      for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
        for (plan::Region& region : plan.replicas[r].regions)
          region.late_weights = plan.replicas[r].regions.size() > 1;
        for (const std::vector<std::size_t>& stages : stages_by_seat(found.plan.replicas[r])) {
          double busy = 0;
          for (const std::size_t s : stages) busy += found.price.spans[r][s].compute.value;
          busiest = std::max(busiest, busy);
        }
      }
      if (plan == given || busiest > found.price.step.value * (1 - kWorthFilling)) continue;
      MOTLEY_RETURN_IF_ERROR(take_if_quicker(found, plan));
    }
    return {};
  }

  /// What messages make a stage wait for may be hidden by one more micro-batch under way than the
  /// search's estimate of the order of passes has, if memory holds it.
  Result<void> begin_one_more() {
    if (!is_best_ || taken_.empty() || !problem_.stages.empty()) return {};
    const auto best =
        std::min_element(taken_.begin(), taken_.end(),
                         [](const Taken& a, const Taken& b) { return a.step < b.step; });
    const PricedStagePlan found = best->found;
    plan::Plan plan = best->plan;
    for (plan::Replica& replica : plan.replicas)
      for (plan::Region& region : replica.regions)
        if (region.ahead > 0) region.ahead = std::min(replica.micro_batches, region.ahead + 1);
    return consider_unless_seen(found, plan);
  }

  /// Where stages of several devices wait for what these exchange.
  Result<void> pair_tasks() {
    if (!is_best_ || !problem_.stages.empty()) return {};
    std::stable_sort(taken_.begin(), taken_.end(),
                     [](const Taken& a, const Taken& b) { return a.step < b.step; });
    const std::vector<Taken> taken = taken_;
    std::size_t tried = 0;
    for (const auto& [found, given, step] : taken) {
      const std::vector<WaitingStage> waiting = find_waiting(costs_, found);
      if (step > taken.front().step * kWorthPairingBeside || waiting.empty()) continue;
      if (tried++ >= kMostPaired) break;
      for (const MoreAhead more : kTriedAhead)
        MOTLEY_RETURN_IF_ERROR(consider_unless_seen(found, pair_stages(given, waiting, more)));
    }
    return {};
  }

  Result<void> consider_unless_seen(const PricedStagePlan& found, const plan::Plan& plan) {
    if (std::find(seen_.begin(), seen_.end(), plan) != seen_.end()) return {};
    seen_.push_back(plan);
    MOTLEY_ASSIGN(const bool is_taken, take_if_quicker(found, plan));
    outcome_.considered += is_taken ? 1 : 0;
    return {};
  }

  /// A weight of two stages is one's so far. Where what is made of it crosses slowly both may have
  /// it.
  Result<void> keep_tied() {
    if (!is_best_ || !apart_ || apart_->plan == *outcome_.plan) return {};
    MOTLEY_RETURN_IF_ERROR(take_if_quicker(apart_->found, apart_->plan));
    return {};
  }

  /// Is more done again now on all devices that need it?
  bool save(const PricedStagePlan& found, const std::map<DeviceId, Bytes>& missing,
            Again& again) const {
    return for_each_seat(found, again, [&](SeatAt& at) {
      double most = 0;
      const std::vector<DeviceId> devices = costs_.devices(at.stage);
      const std::vector<double> scales = costs_.scales(at.stage.unit);
      for (std::size_t i = 0; i < devices.size(); ++i)
        if (const auto lacks = missing.find(devices[i]); lacks != missing.end())
          most = std::max(most, scales[i] * static_cast<double>(lacks->second.value));
      return most == 0 || save_memory(costs_, Bytes(std::llround(most)), at.layers);
    });
  }

  /// Prices it as it is. Was it taken?
  Result<bool> take_if_quicker(const PricedStagePlan& found, const plan::Plan& plan) {
    const auto price = inputs_.evaluator->price(plan);
    if (!price || price->step >= outcome_.predicted_step || !find_missing(plan, *price).empty())
      return false;
    MOTLEY_RETURN_IF_ERROR(take(found, plan, *price));
    return true;
  }

  /// A plan that fits.
  Result<void> take(const PricedStagePlan& found, const plan::Plan& plan,
                    const plan::Price& price) {
    taken_.push_back({found, plan, price.step});
    outcome_.alternatives.push_back({plan, price.step});
    if (outcome_.plan && price.step >= outcome_.predicted_step) {
      if (plan::has_stages(*outcome_.plan) && plan != *outcome_.plan)
        outcome_.runner_ups.push_back({shape_text(plan), price.step});
      return {};
    }
    outcome_.lower_bound = std::min(outcome_.lower_bound, price.step);
    if (outcome_.plan && plan::has_stages(*outcome_.plan))
      outcome_.runner_ups.insert(outcome_.runner_ups.begin(),
                                 {shape_text(*outcome_.plan), outcome_.predicted_step});
    MOTLEY_RETURN_IF_ERROR(take_better(problem_, plan, price, {}, outcome_));
    outcome_.stage_names = name_stages(found.plan);
    is_best_ = true;
    return {};
  }

  std::size_t pool_of(const StagePlan& plan, DeviceId device) const {
    for (const StageReplica& replica : plan.replicas)
      for (const PlannedStage& stage : replica.stages) {
        const std::vector<DeviceId> devices = costs_.devices(stage);
        auto at = std::find(devices.begin(), devices.end(), device) - devices.begin();
        for (const UnitPart& part : costs_.units()[stage.unit].parts) {
          if (at < part.devices) return part.pool;
          at -= part.devices;
        }
      }
    return 0;
  }

  /// "2 replicas of 3 and 1 stages"; "interleaved" where devices have several of them.
  static std::string shape_text(const plan::Plan& plan) {
    std::vector<std::size_t> depths;
    bool is_interleaved = false, is_paired = false;
    for (const plan::Replica& replica : plan.replicas) {
      depths.push_back(replica.regions.size());
      std::set<std::vector<DeviceId>> devices;
      for (const plan::Region& region : replica.regions) {
        is_interleaved = !devices.insert(region.devices).second || is_interleaved;
        is_paired = is_paired || region.turns > 1;
      }
    }
    const std::string states = plan.state_shares.empty() ? "" : ", states shared";
    std::sort(depths.rbegin(), depths.rend());
    const std::size_t count = depths.size();
    depths.erase(std::unique(depths.begin(), depths.end()), depths.end());
    return fmt::format("{} replica{} of {} stage{}{}", count, count == 1 ? "" : "s",
                       fmt::join(depths, " and "), depths == std::vector<std::size_t>{1} ? "" : "s",
                       std::string(is_interleaved ? ", interleaved" : "") +
                           (is_paired ? ", micro-batches taking turns" : "") + states);
  }

  std::vector<std::vector<std::string>> name_stages(const StagePlan& plan) const {
    const FinerLayers& pieces = costs_.pieces();
    std::vector<std::vector<std::string>> found;
    for (const StageReplica& replica : plan.replicas) {
      std::vector<std::string>& stages = found.emplace_back();
      for (const PlannedStage& stage : replica.stages) {
        const std::string first = pieces.name_first(stage.first),
                          last = pieces.name_last(stage.end - 1);
        stages.push_back(first == last ? first : first + " to " + last);
      }
    }
    return found;
  }

  const PlannerInputs& inputs_;
  const plan::Problem& problem_;
  ModelStageCosts& costs_;
  const StageFinder& find_;
  plan::PlanOutcome& outcome_;
  std::optional<StageSums> sums_;
  std::vector<plan::Plan> seen_;                       // that were priced
  std::set<std::string> refused_;                      // why plans cannot be run
  std::set<std::string> refused_codes_;                // of errors that are told
  std::vector<Taken> taken_;                           // that fit
  bool is_sharing_ = false;                            // are plans looked for that share states?
  bool is_best_ = false;                               // does the outcome have one of them?
  std::map<std::vector<std::size_t>, Beyond> beyond_;  // by pools of a stage
  std::optional<Taken> apart_;             // the best one with tied weights where they are read
  bool is_worth_more_ = false;             // does something lack memory that is quicker?
  std::map<std::size_t, double> lacking_;  // pool -> the part of its memory that a plan may use
};

}  // namespace

Result<std::optional<Seconds>> consider_stages(const PlannerInputs& inputs,
                                               const plan::Problem& problem,
                                               plan::PlanOutcome& outcome,
                                               const StageFinder& find) {
  if (inputs.graph == nullptr || inputs.costs == nullptr) return std::nullopt;
  // One device may do its forward pass again; what fits in one micro-batch needs nothing.
  if (problem.devices.size() < 2 && outcome.plan && outcome.plan->replicas[0].micro_batches == 1)
    return std::nullopt;
  const auto costs = ModelStageCosts::make(inputs, problem, find.kinds);
  if (!costs) return std::nullopt;
  MOTLEY_RETURN_IF_ERROR(StagePlanning(inputs, problem, **costs, find, outcome).run());
  return (*costs)->least_step();
}

Result<plan::PlanOutcome> StagePlanner::plan(const plan::Problem& problem) const {
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, WaterFilling(inputs_).plan(problem));
  outcome.planner = name();
  MOTLEY_RETURN_IF_ERROR(consider_stages(inputs_, problem, outcome));
  return outcome;
}

}  // namespace motley::search

#include "motley/run/recovery.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "motley/base/json_fields.h"

namespace motley::run {
namespace {

/// Returns the state of a rank that trains in a generation, between two steps.
RecoveryState trains(const char* device, int generation, std::int64_t step) {
  return {.device = device, .generation = generation, .point = {.step = step}};
}
/// Returns the state within a step that the rank may or may not complete.
RecoveryState in_step(const char* device, int generation, std::int64_t step, bool may_end) {
  RecoveryState recovery_state = trains(device, generation, step);
  recovery_state.is_open = true;
  recovery_state.may_end = may_end;
  return recovery_state;
}
RecoveryState idles(const char* device, int generation, int entering = 0) {
  return {.device = device, .generation = generation, .is_idle = true, .entering = entering};
}
RecoveryState enters(const char* device, int generation, std::int64_t step, int entering) {
  RecoveryState recovery_state = trains(device, generation, step);
  recovery_state.entering = entering;
  return recovery_state;
}

TEST(Standings, SurviveTheirText) {
  const RecoveryState recovery_states[] = {
      {},
      {.device = "a:0", .generation = -1, .is_idle = true, .entering = 4},
      {.device = "c:0", .generation = 2, .is_idle = true, .has_left = true},
      {.device = "b:1",
       .generation = 3,
       .is_open = true,
       .may_end = true,
       .point = {.step = 7,
                 .elapsed_s = 1.25,
                 .saved_step = 5,
                 .saved_path = "run/checkpoint/step-00000005",
                 .evaluated_step = 6,
                 .best = Best{.value = 0.5, .step = 4, .worse_since = 1}}}};
  for (const RecoveryState& each : recovery_states)
    EXPECT_EQ(recovery_state_from_json(recovery_state_to_json(each), "halted").value(), each);
}

TEST(Recoveries, SurviveTheirText) {
  const Recovery recoveries[] = {
      {},
      {.generation = 2, .point = {.step = 9, .evaluated_step = 9}, .stops = true},
      {.generation = 1,
       .point = {.step = 5, .saved_step = 5},
       .from = "run/checkpoint/step-00000005"}};
  for (const Recovery& each : recoveries)
    EXPECT_EQ(fields_from_json<Recovery>(fields_to_json(each), "order").value(), each);
}

TEST(Standings, WhatIsMissingIsNamed) {
  Json json = recovery_state_to_json({});
  json.erase("may_end");
  EXPECT_EQ(recovery_state_from_json(json, "halted").error().message,
            "halted: key 'may_end' is missing");
  Json recovery = fields_to_json(Recovery());
  recovery["point"].erase("step");
  EXPECT_EQ(fields_from_json<Recovery>(recovery, "order").error().message,
            "order: point: key 'step' is missing");
}

TEST(FindRecovery, ThoseWhoAreBehindEndTheirStep) {
  const auto found = find_recovery({in_step("a", 0, 4, true), trains("b", 0, 5)});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->generation, 0);
  EXPECT_EQ(found->point.step, 5);
  EXPECT_FALSE(found->stops);
  EXPECT_EQ(found->from, "");
}

TEST(FindRecovery, WhereNobodyHasTheSumTheStepIsUndone) {
  const auto found = find_recovery({in_step("a", 0, 4, true), in_step("b", 0, 4, false)});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->point.step, 4);
}

TEST(FindRecovery, WhoCannotComeAlongIsUnsettled) {
  const auto not_ready = find_recovery({in_step("a", 0, 4, false), trains("b", 0, 5)});
  ASSERT_FALSE(not_ready);
  EXPECT_EQ(not_ready.error().code, "run.unsettled");
  EXPECT_EQ(not_ready.error().message, "a has done 4 steps, others 5");
  const auto two_behind = find_recovery({in_step("a", 0, 3, true), trains("b", 0, 5)});
  ASSERT_FALSE(two_behind);
  EXPECT_EQ(two_behind.error().message, "a has done 3 steps, others 5");
  // b can be past the barrier only if a's tensors lie in the new layout too.
  const auto old_form = find_recovery({trains("a", 0, 5), trains("b", 1, 5)});
  ASSERT_FALSE(old_form);
  EXPECT_EQ(old_form.error().code, "run.unsettled");
  EXPECT_EQ(old_form.error().message, "a has its tensors as plan 0 had them, others as plan 1");
}

TEST(FindRecovery, WhoEntersComesAlong) {
  const auto found = find_recovery({enters("a", 0, 5, 1), trains("b", 1, 5)});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->generation, 1);
  EXPECT_EQ(found->point.step, 5);
}

TEST(FindRecovery, WhereNobodyHasPassedTheBarrierTheOldFormIsGoneOnFrom) {
  const auto found = find_recovery({enters("a", 0, 5, 1), trains("b", 0, 5)});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->generation, 0);
}

TEST(FindRecovery, OfEqualsWhoHasEvaluatedKnowsMore) {
  RecoveryState first = trains("a", 0, 5), second = trains("b", 0, 5), third = trains("c", 0, 5);
  second.point.evaluated_step = 5;
  second.point.best = Best{.value = 0.5, .step = 5};
  third.point.evaluated_step = 3;
  const auto found = find_recovery({first, second, third});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->point, second.point);
  // One more step outweighs an evaluation.
  RecoveryState behind = in_step("a", 0, 5, true);
  behind.point.evaluated_step = 5;
  EXPECT_EQ(find_recovery({behind, trains("b", 0, 6)})->point.step, 6);
}

TEST(FindRecovery, WhoIsIdleOrHasJustComeHoldsNobodyBack) {
  // d has joined no generation yet, c not the latest; neither knows of steps.
  const auto found =
      find_recovery({trains("a", 2, 5), in_step("b", 2, 5, true), idles("c", 1), idles("d", -1)});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->generation, 2);
  EXPECT_EQ(found->point.step, 5);
}

// They had their tensors in plan 3's layout, which nobody continued with.
TEST(FindRecovery, WhoComesIntoAPlanThatDidNotBeginHoldsNobodyBack) {
  const auto found = find_recovery({enters("a", 2, 5, 3), idles("c", 1, 3), idles("d", -1, 3)});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->generation, 2);
  EXPECT_EQ(found->point.step, 5);
}

// c is idle in both plans and needs nobody to change between them.
TEST(FindRecovery, WhoIsIdleBeforeAndAfterProvesNothing) {
  const auto found = find_recovery({trains("a", 2, 5), enters("b", 2, 5, 3), idles("c", 3)});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->generation, 2);
  EXPECT_EQ(found->point.step, 5);
}

// c left with plan 3, after the barrier; its tensors are gone.
TEST(FindRecovery, WhoLeftHasNothingAnyMore) {
  RecoveryState left = idles("c", 3);
  left.has_left = true;
  left.point.step = 5;
  const auto found = find_recovery({enters("a", 2, 5, 3), enters("b", 2, 5, 3), left});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->generation, 3);
  EXPECT_EQ(found->point.step, 5);
}

TEST(FindRecovery, OneAloneGoesOnFromWhereItStands) {
  EXPECT_EQ(find_recovery({in_step("a", 3, 8, true)})->point.step, 8);
}

TEST(FindRecovery, WithoutTensorsThereIsNowhereToGoOnFrom) {
  const auto found = find_recovery({idles("a", 3), idles("b", 2, 3), idles("c", -1)});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, "run.unsettled");
  EXPECT_EQ(found.error().message, "nobody that is left has tensors");
}

/// The protocol of the ranks, without tensors: a rank completes a step once it knows that all were
/// ready, and enters a plan once it knows that all have their tensors. It can be stopped anywhere.
/// Computes independently what each rank can still reach.
class Protocol {
 public:
  explicit Protocol(std::uint64_t seed) : random_(seed) {
    const int count = 2 + pick(4);
    ranks_.resize(static_cast<std::size_t>(count));
    trainers_[0] = draw();
    for (int i = 0; i < count; ++i) rank(i).is_idle = !trainers_[0].contains(i);
  }

  /// Runs, perhaps with a change, until some ranks are lost.
  void run_and_lose() {
    if (pick(4) == 0) {
      ranks_.push_back({.generation = -1, .is_idle = true});
    }
    if (next_ == 0 && pick(2) == 0) plan(generation_, 1 + farthest() + pick(3));
    for (int i = pick(150); i > 0; --i) act(pick(static_cast<int>(ranks_.size())));
    for (Rank& each : ranks_)
      if (pick(4) == 0 && living() > 1) each.is_lost = true;
  }

  std::vector<RecoveryState> recovery_states() const {
    std::vector<RecoveryState> all;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const Rank& each = ranks_[i];
      if (each.is_lost) continue;
      all.push_back({.device = std::to_string(i),
                     .generation = each.generation,
                     .is_idle = each.is_idle,
                     .has_left = each.has_left,
                     .is_open = each.is_open,
                     .may_end = each.is_ready,
                     .entering = each.entering,
                     .point = {.step = each.step}});
    }
    return all;
  }

  /// Checks that each live rank that trained by the recovery's plan can reach its point.
  void check(const Recovery& recovery) const {
    ASSERT_TRUE(trainers_.contains(recovery.generation)) << recovery.generation;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const Rank& each = ranks_[i];
      if (each.is_lost || !trainers_.at(recovery.generation).contains(static_cast<int>(i)))
        continue;
      if (each.generation == recovery.generation && !each.is_idle) {
        const bool may_end = each.is_ready && each.step + 1 == recovery.point.step;
        EXPECT_TRUE(each.step == recovery.point.step || may_end) << i;
      } else if (each.entering == recovery.generation) {
        EXPECT_EQ(each.step_of_entry, recovery.point.step) << i;
      } else {
        // A rank without tensors must not take part: it would train on zeros.
        ADD_FAILURE() << i << " has its tensors as plan " << each.generation << " had them, not "
                      << recovery.generation;
      }
    }
  }

  /// Lets all live ranks continue from there; some may be stopped on the way.
  void recover(const Recovery& recovery) {
    generation_ = recovery.generation;
    recovery_ = recovery;
    for (Rank& each : ranks_) each.has_settled = false;
    plan(recovery.generation, recovery.point.step);
  }

 private:
  struct Rank {
    int generation = 0;
    bool is_idle = false, has_left = false, is_open = false, is_ready = false, is_lost = false;
    bool has_settled = true;
    int entering = 0;
    std::int64_t step = 0, step_of_entry = 0;
  };

  int pick(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }
  Rank& rank(int i) { return ranks_[static_cast<std::size_t>(i)]; }
  int living() const {
    return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(),
                                          [](const Rank& each) { return !each.is_lost; }));
  }
  std::int64_t farthest() const {
    std::int64_t step = 0;
    for (const Rank& each : ranks_) step = std::max(step, each.step);
    return step;
  }

  std::set<int> draw() {
    std::set<int> drawn;
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      if (!ranks_[i].is_lost && pick(3) > 0) drawn.insert(static_cast<int>(i));
    for (std::size_t i = 0; i < ranks_.size() && drawn.empty(); ++i)
      if (!ranks_[i].is_lost) drawn.insert(static_cast<int>(i));
    return drawn;
  }

  /// Plans a change after step `step` of generation `from`, for live ranks.
  void plan(int from, std::int64_t step) {
    next_ = ++number_;
    before_ = from;
    change_at_ = step;
    trainers_[next_] = draw();
    movers_.clear();
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const int id = static_cast<int>(i);
      if (!ranks_[i].is_lost && (trainers_[next_].contains(id) || trainers_[from].contains(id)))
        movers_.insert(id);
    }
    entered_.clear();
  }

  void act(int id) {
    Rank& each = rank(id);
    if (each.is_lost) return;
    if (!each.has_settled) return settle(id);
    if (each.entering != 0) return pass(id);
    const bool goes = next_ != 0 && each.generation != next_ && is_told(id);
    if (goes) return move(id);
    if (!each.is_idle) train(each, id);
    const bool all_have_come = std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& other) {
      return other.is_lost || other.generation == next_;
    });
    if (all_have_come) next_ = 0, recovery_.reset();
  }

  bool is_told(int id) {
    Rank& each = rank(id);
    if (recovery_) return true;
    if (!each.is_idle)
      return each.generation == before_ && each.step == change_at_ && !each.is_open;
    if (each.generation == -1) each.generation = before_;
    return each.generation == before_ &&
           std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& other) {
             return !other.is_idle && other.generation == before_ && other.step == change_at_;
           });
  }

  void settle(int id) {
    Rank& each = rank(id);
    if (each.entering == recovery_->generation)
      enter(each, id, recovery_->generation, each.step_of_entry);
    if (!each.is_idle && each.generation == recovery_->generation)
      each.step = recovery_->point.step;
    each.is_open = each.is_ready = false;
    each.entering = 0;
    each.has_settled = true;
  }

  void enter(Rank& each, int id, int generation, std::int64_t step) const {
    each.generation = generation;
    each.has_left = each.entering == generation && !trainers_.at(generation).contains(id);
    each.is_idle = !trainers_.at(generation).contains(id);
    each.step = step;
    each.is_open = each.is_ready = false;
    each.entering = 0;
  }

  void move(int id) {
    Rank& each = rank(id);
    // All must have prepared before the first moves.
    if (recovery_ && std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& other) {
          return !other.is_lost && !other.has_settled;
        }))
      return;
    if (!movers_.contains(id)) return enter(each, id, next_, change_at_);
    each.entering = next_;
    each.step_of_entry = change_at_;
    entered_.insert(id);
  }

  void pass(int id) {
    if (rank(id).entering != next_ || entered_ != movers_) return;
    enter(rank(id), id, next_, change_at_);
    generation_ = next_;
  }

  void train(Rank& each, int id) {
    if (next_ != 0 && each.generation == before_ && each.step == change_at_) return;
    const std::pair<int, std::int64_t> place{each.generation, each.step};
    if (!each.is_open) {
      each.is_open = true;
      ballots_[place].erase(id);
    } else if (!each.is_ready) {
      each.is_ready = true;
      ballots_[place].insert(id);
    } else if (ballots_[place] == trainers_[each.generation]) {
      each.is_open = each.is_ready = false;
      ++each.step;
    }
  }

  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::map<int, std::set<int>> trainers_;  // by generation
  std::set<int> movers_, entered_;         // of the change in progress
  std::map<std::pair<int, std::int64_t>, std::set<int>> ballots_;
  int generation_ = 0, number_ = 0, next_ = 0, before_ = 0;
  std::int64_t change_at_ = 0;
  std::optional<Recovery> recovery_;
};

TEST(FindRecovery, WhatRanksPromiseIsNeverUnsettled) {
  int begun = 0, entered = 0, ended = 0;  // counts that each occurred
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    SCOPED_TRACE(seed);
    Protocol protocol(seed);
    for (int loss = 0; loss < 4; ++loss) {
      protocol.run_and_lose();
      const std::vector<RecoveryState> recovery_states = protocol.recovery_states();
      const auto found = find_recovery(recovery_states);
      const bool nobody =
          std::all_of(recovery_states.begin(), recovery_states.end(),
                      [](const RecoveryState& each) { return each.is_idle && !each.has_left; });
      if (nobody) break;  // from a checkpoint
      ASSERT_TRUE(found) << loss << ": " << found.error().message;
      protocol.check(*found);
      if (HasFailure()) return;
      for (const RecoveryState& each : recovery_states) {
        begun += each.generation > 0 ? 1 : 0;
        entered += each.entering != 0 && each.entering == found->generation ? 1 : 0;
        ended += !each.is_idle && each.generation == found->generation && each.may_end &&
                         each.point.step + 1 == found->point.step
                     ? 1
                     : 0;
      }
      protocol.recover(*found);
    }
  }
  EXPECT_GT(begun, 1000);
  EXPECT_GT(entered, 100);
  EXPECT_GT(ended, 100);
}

}  // namespace
}  // namespace motley::run

#include "motley/control/training/candidates.h"

#include <gmock/gmock.h>

#include "motley/control/planning/placing.h"
#include "motley/control/training/splits.h"
#include "motley/testing/small_question.h"

namespace motley::control {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A batch of 8 that is split 6:2, and its changes.
class CandidatesTest : public SmallQuestionTest {
 protected:
  CandidatesTest()
      : chosen_(
            choose_plan(question_,
                        {.prices = {.profiles = directory_.file("profiles.db")}, .manual = {6, 2}},
                        outside_)
                .value()),
        choices_(std::move(*adapt_split(*chosen_, std::nullopt, "even").value())) {
    for (const DeviceId device : chosen_->inputs.devices) {
      names_.push_back(chosen_->inputs.cluster.device(device).name);
      job_.devices.push_back(worker_device(chosen_->inputs.cluster, device, std::nullopt));
    }
  }

  policy::UseSplit split(std::int64_t first) const {
    return {{{names_[0], first}, {names_[1], 8 - first}}};
  }

  const std::unique_ptr<const ChosenPlan> chosen_;
  Adaptation choices_;
  run::Job job_;
  std::vector<std::string> names_;
  Candidates candidates_{choices_, chosen_->inputs, job_};
};

TEST_F(CandidatesTest, EqualPlansHaveOneNumber) {
  const int first = candidates_.find(split(4)).value();
  EXPECT_EQ(candidates_.label(first), "the batch split 4:4");
  EXPECT_EQ(candidates_.find(split(4)), first);
  EXPECT_EQ(candidates_.find(split(5)), first + 1);
  EXPECT_EQ(candidates_.find(policy::UsePlan{first}), first);
}

TEST_F(CandidatesTest, AnActionThatTheTrainingCannotDoIsAnError) {
  EXPECT_EQ(candidates_.find(policy::UseBatch{}).error().code, "policy.action");
}

TEST_F(CandidatesTest, AChangeMovesTheStateOfWhoHasIt) {
  const int before = candidates_.find(split(6)).value(), after = candidates_.find(split(4)).value();
  const run::Change change = candidates_.make_change({.to = after, .from = before}).value();
  EXPECT_EQ(change.devices.size(), 2u);
  EXPECT_EQ(change.move.devices.size(), 2u);
  // From a checkpoint nothing moves.
  EXPECT_THAT(candidates_.make_change({.to = after}).value().move.devices, IsEmpty());
}

TEST_F(CandidatesTest, OneDeviceAloneSavesTheState) {
  const int before = candidates_.find(split(6)).value();
  const int alone = candidates_.make_saving(names_[1], before).value();
  EXPECT_THAT(candidates_.devices(alone), ElementsAre(names_[1]));
  const auto change = candidates_.make_change(
      {.to = alone, .from = before, .there = std::set<std::string>{names_[1]}});
  ASSERT_TRUE(change) << change.error().message;
  EXPECT_EQ(change->devices.size(), 1u);
}

}  // namespace
}  // namespace motley::control

#include "motley/synth/stages/sharded_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace motley::synth {
namespace {

using ::testing::ElementsAre;

/// A value from a stage of two devices to one of three, with these shares, in this form.
ShardedStages two_to_three(const graph::Form& form) {
  ShardedStages made;
  made.step.stages.resize(2);
  made.step.stages[0].ranks = {0, 1};
  made.step.stages[1].ranks = {2, 3, 4};
  made.step.boundary_values = {{0, 1}};
  made.forms = {form};
  for (const std::vector<double>& shares : {std::vector<double>{1, 1}, {1, 1, 2}}) {
    ShardedStage& stage = made.stages.emplace_back();
    stage.found.sharding.shares = shares;
    stage.parts.emplace(stage.found.sharding.shares);
  }
  return made;
}

std::vector<std::string> pieces_of(ShardedStages made) {
  std::vector<std::string> found;
  for (const BoundaryPiece& each : made.find_pieces(0))
    found.push_back(std::to_string(each.from) + ">" + std::to_string(each.to) + " " +
                    std::to_string(each.begin) + "-" + std::to_string(each.end));
  return found;
}

// Makers have 4 + 4 rows, readers 2 + 2 + 4.
TEST(BoundaryPieces, AreRowsThatMakerAndReaderHave) {
  EXPECT_THAT(pieces_of(two_to_three({graph::FormKind::kSharded, 0, 1, 8, 1})),
              ElementsAre("0>0 0-2", "0>1 2-4", "1>2 4-8"));
}

TEST(BoundaryPieces, OfAWholeValueEachReaderHasAMakerInTurns) {
  EXPECT_THAT(pieces_of(two_to_three(graph::kWholeForm)),
              ElementsAre("0>0 0-1", "1>1 0-1", "0>2 0-1"));
}

}  // namespace
}  // namespace motley::synth

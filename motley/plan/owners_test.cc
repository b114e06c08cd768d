#include "motley/plan/owners.h"

#include <gmock/gmock.h>

#include "motley/graph/graph_text.h"

namespace motley::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

graph::Graph three_parameters() {
  return graph::parse_graph(R"(motley.graph/1
name "three"
size batch 1 8
param %0: f32[4] "a.weight"
param %1: f32[4] "a.bias"
param %2: f32[4] "b.weight" tied "c.weight"
op %3: f32[] = aten::sum(%0, dtype(f32)) fwd ""
output loss %3
)",
                            "three")
      .value();
}

std::string refused(const std::vector<Owners>& owners) {
  const auto found = find_owners(owners, three_parameters());
  return found ? "" : found.error().code + ": " + found.error().message;
}

TEST(Owners, AreFoundByPatterns) {
  const auto found = find_owners({{{"*.bias"}, {}}, {{"b.*", "c.*"}, {}}}, three_parameters());
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_THAT(*found, ElementsAre(Pair("a.bias", 0), Pair("b.weight", 1)));
  EXPECT_EQ(find_owners({{{"*"}, {}}}, three_parameters())->size(), 3U);
}

TEST(Owners, RefuseAPatternWithoutAParameterAndAParameterOfTwo) {
  EXPECT_EQ(refused({{{"a.*"}, {}}, {{"d.*"}, {}}}),
            "plan.owners: owners 1: no parameter of the model is named 'd.*'");
  EXPECT_EQ(refused({{{"a.*"}, {}}, {{"*.weight"}, {}}}),
            "plan.owners: owners 0 and 1 both name parameter 'a.weight'; each parameter has one "
            "entry at most");
}

}  // namespace
}  // namespace motley::plan

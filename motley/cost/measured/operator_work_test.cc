#include "motley/cost/measured/operator_work.h"

#include <gmock/gmock.h>

#include "motley/graph/graph_text.h"
#include "motley/program/program_text.h"

namespace motley::cost {
namespace {

using ::testing::ElementsAre;

constexpr const char* kGraph =
    "motley.graph/1\nname \"one\"\nsize batch 1 64\n"
    "input %0: f32[batch, 3] \"x\"\n"
    "param %1: f32[5, 3] \"w\"\n"
    "op %2: f32[3, 5] = aten::t(%1) fwd \"\"\n"
    "op %3: f32[batch, 5] = aten::mm(%0, %2) fwd \"\"\n"
    "op %4: f32[] = aten::sum(%3, none) fwd \"\"\n"
    "output loss %4\n";

TEST(OperatorWork, IsThatOfTheGraphAtTheProgramsSamples) {
  const auto graph = graph::parse_graph(kGraph, "g");
  ASSERT_TRUE(graph) << graph.error().message;
  const auto program = program::parse_program(
      "motley.program/1\nmodel \"\" plan \"\" global_batch 8\ngroup 0: 0\n"
      "device \"a:0\" samples 8 first 0\n"
      "buffer %0: input f32[8, 3] \"x\"\n"
      "buffer %1: parameter f32[5, 3] \"w\"\n"
      "buffer %2: temporary f32[3, 5] view %1\n"
      "buffer %3: temporary f32[8, 5]\n"
      "buffer %4: temporary f32[15]\n"
      "compute ^0: %0 = motley::load(0)\n"
      "compute ^1: %2 = aten::t(%1) origin 0\n"
      "compute ^2: %3 = aten::mm(%0, %2) origin 1\n"
      "compute ^3: %4 = motley::pack([%1])\n"
      "transfer ^4: motley::all_reduce(%4) group 0 wait ^3\n"
      "compute ^5: motley::unpack(%4, [%1]) wait ^4 free %4\n",
      "p");
  ASSERT_TRUE(program) << program.error().message;
  // load: writes 8 * 3 * 4 = 96. mm: 2 * 8 * 5 * 3 = 240 operations; reads 96 + 60, writes 160.
  // pack: reads and writes 60. unpack, in place: reads both 60 and counts them as written.
  EXPECT_THAT(instruction_work(program->devices[0], *graph),
              ElementsAre(OperatorWork{0, 96, 1}, OperatorWork{}, OperatorWork{240, 316, 1},
                          OperatorWork{0, 120, 1}, OperatorWork{}, OperatorWork{0, 240, 1}));
}

}  // namespace
}  // namespace motley::cost

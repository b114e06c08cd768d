#include "motley/program/boxes.h"

#include <gtest/gtest.h>

#include "motley/program/program_text.h"

namespace motley::program {
namespace {

Result<Program> parse_copies(const std::string& line) {
  return parse_program(
      "motley.program/1\nmodel \"\" plan \"\" global_batch 0\n"
      "device \"a:0\" samples 0 first 0\n"
      "buffer %0: parameter f32[4, 6] \"w\"\n"
      "buffer %1: parameter f32[4, 2] \"v\"\n"
      "buffer %2: parameter f64[8] \"d\"\n"
      "buffer %3: temporary f32[8]\n"
      "buffer %4: temporary f32[8] view %1\n" +
          line,
      "p");
}

std::string fault_of(const std::string& line) {
  const auto program = parse_copies("compute ^0: " + line + "\n");
  if (program) return "";
  const std::string& message = program.error().message;
  return message.substr(message.find("motley::"));
}

TEST(Boxes, AreReadPrintedAndPriced) {
  const std::string text =
      "compute ^0: %3 = motley::take([%0], [[2, 4, 6, 2, 1]])\n"
      "compute ^1: motley::put([%0, %1], [[2, 4, 6, 2, 1], [7]], [%3, %3], [[0, 4, 2, 2, 1], [7]])"
      "\n";
  const auto program = parse_copies(text);
  ASSERT_TRUE(program) << program.error().message;
  const DeviceProgram& device = program->devices[0];
  EXPECT_NE(print_program(*program).find(text), std::string::npos);
  const auto take = find_box_copies(device.instructions[0]);
  const auto put = find_box_copies(device.instructions[1]);
  ASSERT_TRUE(take && put);
  const Box columns{2, {{4, 6}, {2, 1}}};
  EXPECT_EQ(take->from[0], std::pair(BufferId(0), columns));
  EXPECT_EQ(take->result, BufferId(3));
  EXPECT_EQ(put->into[0], std::pair(BufferId(0), columns));
  EXPECT_EQ(put->from[1], std::pair(BufferId(3), Box{7, {}}));
  EXPECT_EQ(put->elements, 9);  // 4 * 2 + 1
  EXPECT_EQ(std::get<ArgumentList>(box_argument(columns).value),
            std::get<ArgumentList>(
                std::get<ArgumentList>(device.instructions[0].arguments[1].value)[0].value));
  EXPECT_EQ(cost_key(device, device.instructions[0]), "motley::take(f32, 8 elements, 1 boxes)");
  EXPECT_EQ(cost_key(device, device.instructions[1]), "motley::put(f32, 9 elements, 2 boxes)");
}

TEST(Boxes, LieWithinTheirTensors) {
  // 2 + 3 * 6 + 4 * 1 = 24, one past the end.
  EXPECT_EQ(fault_of("%3 = motley::take([%0], [[2, 4, 6, 5, 1]])"),
            "motley::take: found a box up to element 24 of %0, which has 24");
  EXPECT_EQ(fault_of("%3 = motley::take([%0], [[-1, 8, 1]])"),
            "motley::take: found a box of %0 that has no elements, or some twice");
  EXPECT_EQ(fault_of("%3 = motley::take([%0], [[0, 0, 1]])"),
            "motley::take: found a box of %0 that has no elements, or some twice");
  // Elements 1 and 2 are in both rows.
  EXPECT_EQ(fault_of("%3 = motley::take([%0], [[0, 2, 1, 3, 1]])"),
            "motley::take: found a box of %0 that has no elements, or some twice");
  EXPECT_EQ(fault_of("%3 = motley::take([%0], [[0, 4, 4611686018427387904, 2, 1]])"),
            "motley::take: found a box of %0 that has no elements, or some twice");
  EXPECT_EQ(fault_of("%3 = motley::take([%0], [[0, 8, 1]])"), "");
}

TEST(Boxes, FitWhatTheyAreCopiedTo) {
  EXPECT_EQ(fault_of("%3 = motley::take([%0], [[0, 7, 1]])"),
            "motley::take: found 8 elements in 1 dimensions of %3, wanted 7 in one");
  EXPECT_EQ(fault_of("%3 = motley::take([%2], [[0, 8, 1]])"),
            "motley::take: found dtype f64 of %2, wanted f32");
  EXPECT_EQ(fault_of("%4 = motley::take([%0], [[0, 8, 1]])"),
            "motley::take: defines %4, which is a view");
  EXPECT_EQ(fault_of("motley::put([%1], [[0, 8, 1]], [%2], [[0, 8, 1]])"),
            "motley::put: found dtype f64 of %2, wanted f32");
  EXPECT_EQ(fault_of("motley::put([%1], [[0, 8, 1]], [%0], [[0, 4, 2, 2, 1]])"),
            "motley::put: found boxes of unequal extents in %1 and %0");
  EXPECT_EQ(fault_of("motley::put([%0], [[0, 1]], [%0], [[0]])"),
            "motley::put: wanted buffers, a box of each, as many buffers again and a box of each");
  EXPECT_EQ(fault_of("%3 = motley::take([%0], [])"),
            "motley::take: wanted buffers, a box of each and a result");
}

// Memory must not change before it is sent. Line 11 is ^2, after 3 lines of names and 5 buffers.
TEST(Boxes, AreWrittenInPlace) {
  const auto program = parse_copies(
      "compute ^0: %3 = motley::take([%1], [[0, 8, 1]])\n"
      "peer ^1: motley::send(%1, 1)\n"
      "compute ^2: motley::put([%1], [[0, 8, 1]], [%3], [[0, 8, 1]])\n"
      "device \"b:0\" samples 0 first 0\n"
      "buffer %0: temporary f32[8]\n"
      "peer ^0: %0 = motley::receive(0)\n");
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().message,
            "p:11: a:0 ^2 motley::put: writes %1 without waiting for ^1, which uses its memory in "
            "the peer lane");
}

}  // namespace
}  // namespace motley::program

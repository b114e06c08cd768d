#include "motley/program/strands.h"

#include <gtest/gtest.h>

#include "motley/program/program_text.h"

namespace motley::program {
namespace {

/// Parses c:0, one of three devices that exchange an f32[4] with it.
DeviceProgram parse_third(const std::string& body, const std::string& others) {
  const auto program = parse_program(
      "motley.program/1\nmodel \"\" plan \"\" global_batch 8\n"
      "device \"c:0\" samples 8 first 0\nbuffer %0: temporary f32[4]\nbuffer %1: temporary "
      "f32[4]\n" +
          body + others,
      "p");
  EXPECT_TRUE(program) << program.error().message;
  return program->devices[0];
}

const char* const kOthers =
    "device \"a:0\" samples 0 first 0\nbuffer %0: constant f32[4] \"c\"\nbuffer %1: temporary "
    "f32[4]\npeer ^0: motley::send(%0, 0)\npeer ^1: %1 = motley::receive(0)\n"
    "device \"b:0\" samples 0 first 0\nbuffer %0: temporary f32[4]\n"
    "peer ^0: %0 = motley::receive(0)\n";

TEST(Strands, AreNumberedByRankReceivesFirst) {
  const Strands strands =
      find_strands(parse_third("peer ^0: %0 = motley::receive(1)\n"
                               "peer ^1: motley::send(%0, 2) wait ^0\n"
                               "compute ^2: aten::f()\n"
                               "peer ^3: motley::send(%0, 1) wait ^0\n",
                               kOthers));
  const std::vector<Strand> wanted = {{Lane::kCompute, {}, {}},
                                      {Lane::kTransfer, {}, {}},
                                      {Lane::kPeer, Rank(1), Direction::kReceive},
                                      {Lane::kPeer, Rank(1), Direction::kSend},
                                      {Lane::kPeer, Rank(2), Direction::kSend}};
  EXPECT_EQ(strands.all, wanted);
  EXPECT_EQ(strands.of, (std::vector<std::size_t>{2, 4, 0, 3}));
}

TEST(Order, KnowsWhatHasFinishedThroughOthers) {
  // The example of strands.h, plus a send to the other rank that waits for nothing.
  const DeviceProgram program = parse_third(
      "compute ^0: %1 = aten::f()\n"
      "peer ^1: %0 = motley::receive(1) wait ^0\n"
      "compute ^2: aten::f() wait ^1\n"
      "peer ^3: motley::send(%0, 1) wait ^2\n"
      "peer ^4: motley::send(%1, 2) wait ^0\n",
      kOthers);
  const Order order(program);
  EXPECT_EQ(order.finished(3, Strands::kCompute), InstructionId(2));
  EXPECT_EQ(order.finished(3, order.strands().of[1]), InstructionId(1));
  EXPECT_TRUE(order.has_finished(InstructionId(0), 3));
  EXPECT_TRUE(order.has_finished(InstructionId(1), 3));
  EXPECT_EQ(order.finished(4, Strands::kCompute), InstructionId(0));
  EXPECT_FALSE(order.has_finished(InstructionId(1), 4));
  EXPECT_FALSE(order.has_finished(InstructionId(2), 4));
  EXPECT_TRUE(order.has_finished(InstructionId(), 4));
}

}  // namespace
}  // namespace motley::program

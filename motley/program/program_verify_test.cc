#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "motley/program/program_text.h"
#include "motley/testing/program_generator.h"

namespace motley::program {
namespace {

/// Returns the violations in a program of these lines; the first one is line 3 of "p".
std::string violations_of(const std::string& body) {
  const auto program =
      parse_program("motley.program/1\nmodel \"\" plan \"\" global_batch 8\n" + body, "p");
  return program ? "" : program.error().message;
}

/// Returns the violations on a device a:0 with a few buffers; the first line of `body` is line 11.
std::string violations_on_device(const std::string& body) {
  return violations_of(
      "group 0: 0\n"
      "device \"a:0\" samples 8 first 0\n"
      "buffer %0: parameter f32[4] \"w\"\n"
      "buffer %1: input f32[8, 4] \"x\"\n"
      "buffer %2: temporary f32[4]\n"
      "buffer %3: temporary f32[4]\n"
      "buffer %4: temporary f32[2, 2] view %2\n"
      "buffer %5: temporary f32[4]\n" +
      body);
}

RC_GTEST_PROP(ProgramVerify, AcceptsWhatTheGeneratorDraws, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto size = *rc::gen::inRange<std::size_t>(2, 60);
  const auto verified = verify_program(testing::ProgramGenerator(seed).draw(size), "p");
  if (!verified) RC_FAIL(verified.error().message);
}

TEST(ProgramVerify, ReportsAllViolationsWithoutLinesForAProgramInMemory) {
  Program program = testing::ProgramGenerator(1).draw(10);
  program.devices.resize(1);
  program.groups.clear();
  program.devices[0].device = "a:0";
  program.devices[0].samples = 1;
  program.devices[0].instructions = {
      {Lane::kCompute, "aten::f", "", {{BufferId(99)}}, {BufferId(-1)}},
      {Lane::kTransfer, "motley::all_reduce", "", {{BufferId(0)}}},
  };
  EXPECT_EQ(verify_program(program, "memory").error().message,
            "memory: a:0 ^0 aten::f: names %99, which does not exist\n"
            "memory: a:0 ^0 aten::f: names %-1, which does not exist\n"
            "memory: a:0 ^1 motley::all_reduce: a collective without a group");
}

TEST(ProgramVerify, ProgramsHaveDevices) { EXPECT_EQ(violations_of(""), "p: has no devices"); }

TEST(ProgramVerify, GroupsHoldDevicesOnce) {
  EXPECT_EQ(violations_of("group 0:\ngroup 1: 0 2 0\ndevice \"a:0\" samples 8 first 0\n"),
            "p:3: group 0: has no members\n"
            "p:4: group 1: rank 2 is not one of the 1 devices\n"
            "p:4: group 1: rank 0 is a member twice");
}

TEST(ProgramVerify, DevicesHaveNamesAndAPartOfTheBatch) {
  EXPECT_EQ(violations_of("device \"a:0\" samples 8 first 1\ndevice \"a:0\" samples 0 first 8\n"
                          "device \"\" samples -1 first 0\n"),
            "p:3: a:0: found 8 samples from sample 1, wanted a part of the global batch of 8\n"
            "p:4: a:0: two devices of this name\n"
            "p:5: : a device without a name\n"
            "p:5: : found -1 samples from sample 0, wanted a part of the global batch of 8");
}

TEST(ProgramVerify, BuffersAreSound) {
  EXPECT_EQ(violations_of("device \"a:0\" samples 8 first 0\n"
                          "buffer %0: parameter f32[4]\n"
                          "buffer %1: state f32[4] \"s\"\n"
                          "buffer %2: state f32[4] \"s\" view %1\n"
                          "buffer %3: temporary f32[-4]\n"
                          "buffer %4: temporary f32[1073741824, 1073741824]\n"
                          "buffer %5: temporary none[4294967296, 4294967296]\n"
                          "buffer %6: temporary f32[4] view %9\n"),
            "p:4: a:0 %0: lives from step to step but has no name\n"
            "p:6: a:0 %2: two buffers of the name 's'\n"
            "p:6: a:0 %2: lives from step to step, so it cannot be a view\n"
            "p:7: a:0 %3: found an extent of -4\n"
            "p:8: a:0 %4: is larger than 2^60 bytes\n"
            "p:9: a:0 %5: has more than 2^63 elements\n"
            "p:10: a:0 %6: is a view of %9, which does not exist");
  EXPECT_EQ(violations_of("device \"a:0\" samples 8 first 0\n"
                          "buffer %0: temporary c64[4]\n"
                          "buffer %1: constant c128[4] \"c\"\n"),
            "p:5: a:0 %1: only a temporary may be complex");
  EXPECT_EQ(violations_of("device \"a:0\" samples 8 first 0\n"
                          "buffer %0: temporary u8[1073741824, 1073741824]\n"
                          "buffer %1: temporary u8[1]\n"),
            "p:5: a:0 %1: with those before it is larger than 2^60 bytes");
}

TEST(ProgramVerify, ViewsHaveRoots) {
  EXPECT_EQ(violations_of("device \"a:0\" samples 8 first 0\n"
                          "buffer %0: temporary f32[4] view %1\n"
                          "buffer %1: temporary f32[4] view %2\n"
                          "buffer %2: temporary f32[4] view %1\n"),
            "p:5: a:0 %1: is a view of itself");
}

TEST(ProgramVerify, IdsExist) {
  EXPECT_EQ(violations_on_device("compute ^0: %9 = aten::f([%7]) group 3 free %8\n"),
            "p:11: a:0 ^0 aten::f: names %7, which does not exist\n"
            "p:11: a:0 ^0 aten::f: names %9, which does not exist\n"
            "p:11: a:0 ^0 aten::f: names %8, which does not exist\n"
            "p:11: a:0 ^0 aten::f: group 3 does not exist");
}

TEST(ProgramVerify, WaitsNameEarlierInstructionsOfTheOtherLane) {
  EXPECT_EQ(violations_on_device("compute ^0: aten::f() wait ^1\n"
                                 "transfer ^1: aten::f() wait ^1\n"
                                 "compute ^2: aten::f() wait ^0\n"),
            "p:11: a:0 ^0 aten::f: waits for ^1, which does not come before it\n"
            "p:12: a:0 ^1 aten::f: waits for ^1, which does not come before it\n"
            "p:13: a:0 ^2 aten::f: waits for ^0 of its own compute lane");
}

TEST(ProgramVerify, BuffersAreDefinedOnceAndBeforeTheyAreUsed) {
  EXPECT_EQ(violations_on_device("compute ^0: %2 = aten::f(%0, %3)\n"
                                 "compute ^1: %2, %0 = aten::f(%1)\n"
                                 "compute ^2: aten::f() free %5\n"),
            "p:11: a:0 ^0 aten::f: uses %3 before it is defined\n"
            "p:12: a:0 ^1 aten::f: uses %1 before it is defined\n"
            "p:12: a:0 ^1 aten::f: defines %2, which ^0 has defined\n"
            "p:12: a:0 ^1 aten::f: defines %0, which lives from step to step\n"
            "p:13: a:0 ^2 aten::f: frees %5 before it is defined");
}

TEST(ProgramVerify, ViewsComeAfterWhatTheyAreViewsOf) {
  EXPECT_EQ(violations_on_device("compute ^0: %4 = aten::view(%0)\n"),
            "p:11: a:0 ^0 aten::view: defines %4 as a view of %2, which is not defined");
}

TEST(ProgramVerify, FreedBuffersAreGone) {
  EXPECT_EQ(violations_on_device("compute ^0: %2 = aten::f() free %2 %0\n"
                                 "compute ^1: aten::f(%2) free %2\n"),
            "p:11: a:0 ^0 aten::f: frees %0, which lives from step to step\n"
            "p:12: a:0 ^1 aten::f: uses %2 after ^0 freed it\n"
            "p:12: a:0 ^1 aten::f: frees %2, which ^0 has freed");
}

TEST(ProgramVerify, AViewOutlivesTheHandleOfItsRoot) {
  EXPECT_EQ(violations_on_device("compute ^0: %2 = aten::f()\n"
                                 "compute ^1: %4 = aten::view(%2) free %2\n"
                                 "compute ^2: aten::f(%4) free %4\n"),
            "");
}

TEST(ProgramVerify, LanesWaitForDefinitions) {
  EXPECT_EQ(violations_on_device("compute ^0: %2 = aten::f()\n"
                                 "transfer ^1: motley::all_reduce(%2) group 0\n"),
            "p:12: a:0 ^1 motley::all_reduce: uses %2 without waiting for ^0, which defines it");
}

TEST(ProgramVerify, LanesWaitForWritesOfTheSameMemory) {
  // ^2 reads %2 through its view while ^1 may still sum it. ^3 waits, so it may read. The wait of
  // ^5 for ^4 also covers what precedes ^4 in its lane.
  EXPECT_EQ(violations_on_device("compute ^0: %2, %4, %3 = aten::f()\n"
                                 "transfer ^1: motley::all_reduce(%2) group 0 wait ^0\n"
                                 "compute ^2: %5 = aten::f(%4)\n"
                                 "compute ^3: aten::f(%4) wait ^1\n"
                                 "transfer ^4: motley::all_reduce(%3) group 0\n"
                                 "compute ^5: aten::f_(%3) wait ^4\n"),
            "p:13: a:0 ^2 aten::f: reads %4 without waiting for ^1, which writes its memory in the "
            "transfer lane");
  EXPECT_EQ(violations_on_device("compute ^0: %2 = aten::f()\n"
                                 "compute ^1: aten::f(%2)\n"
                                 "transfer ^2: motley::all_reduce(%2) group 0 wait ^0\n"),
            "p:13: a:0 ^2 motley::all_reduce: writes %2 without waiting for ^1, which uses its "
            "memory in the compute lane");
}

TEST(ProgramVerify, WritesAreThoseOfUpdateAssignAndInPlaceOperators) {
  const auto after_sum = [](const std::string& instruction) {
    return violations_on_device(
        "compute ^0: %2 = aten::f()\n"
        "transfer ^1: motley::copy(%0) wait ^0\n"
        "compute ^2: " +
        instruction + "\n");
  };
  const std::string tail =
      "writes %0 without waiting for ^1, which uses its memory in the "
      "transfer lane";
  EXPECT_EQ(after_sum("aten::f(%0)"), "");  // two lanes may read
  EXPECT_EQ(after_sum("aten::__and__.Tensor(%0, %2)"), "");
  EXPECT_EQ(after_sum("aten::add_(%0, %2)"), "p:13: a:0 ^2 aten::add_: " + tail);
  EXPECT_EQ(after_sum("motley::assign([%0], [%2])"), "p:13: a:0 ^2 motley::assign: " + tail);
  EXPECT_EQ(after_sum("motley::update(\"sgd\", [%0], [%2], [], [])"),
            "p:13: a:0 ^2 motley::update: " + tail);
  EXPECT_EQ(after_sum("motley::update(\"sgd\", [], [%0], [], [])"), "");
}

TEST(ProgramVerify, MakingAViewTouchesNoMemory) {
  EXPECT_EQ(violations_on_device("compute ^0: %2 = aten::f()\n"
                                 "transfer ^1: motley::all_reduce(%2) group 0 wait ^0\n"
                                 "compute ^2: %4 = aten::view(%2)\n"
                                 "compute ^3: aten::f(%4) wait ^1\n"),
            "");
}

TEST(ProgramVerify, FreesWaitForTheOtherLane) {
  EXPECT_EQ(violations_on_device("compute ^0: %2 = aten::f()\n"
                                 "transfer ^1: motley::all_reduce(%2) group 0 wait ^0\n"
                                 "compute ^2: aten::f() free %2\n"),
            "p:13: a:0 ^2 aten::f: frees %2 without waiting for ^1, which uses it");
}

TEST(ProgramVerify, CollectivesBelongToAGroupOfTheDevice) {
  EXPECT_EQ(violations_of("group 0: 1\n"
                          "device \"a:0\" samples 4 first 0\n"
                          "buffer %0: constant f32[4] \"c\"\n"
                          "transfer ^0: motley::all_reduce(%0)\n"
                          "transfer ^1: motley::all_reduce(%0) group 0\n"
                          "device \"b:0\" samples 4 first 4\n"),
            "p:6: a:0 ^0 motley::all_reduce: a collective without a group\n"
            "p:7: a:0 ^1 motley::all_reduce: this device is no member of group 0");
}

TEST(ProgramVerify, CollectivesMatchOnAllMembers) {
  EXPECT_EQ(violations_of("group 0: 0 1 2\n"
                          "device \"a:0\" samples 4 first 0\n"
                          "buffer %0: state f32[4] \"s\"\n"
                          "buffer %1: state f32[2, 3] \"t\"\n"
                          "transfer ^0: motley::all_reduce(%0) group 0\n"
                          "transfer ^1: motley::all_reduce(%1) group 0\n"
                          "device \"b:0\" samples 4 first 4\n"
                          "buffer %0: state f32[4] \"s\"\n"
                          "buffer %1: state f32[6] \"t\"\n"
                          "transfer ^0: motley::all_reduce(%1) group 0\n"
                          "transfer ^1: motley::all_reduce(%0) group 0\n"
                          "device \"c:0\" samples 0 first 8\n"
                          "buffer %0: state f64[4] \"s\"\n"
                          "transfer ^0: motley::all_reduce(%0) group 0\n"),
            "p:12: b:0 ^0 motley::all_reduce: number 0 of group 0: found motley::all_reduce of 6 "
            "f32, wanted motley::all_reduce of 4 f32 as in ^0 on a:0\n"
            "p:16: c:0 ^0 motley::all_reduce: number 0 of group 0: found motley::all_reduce of 4 "
            "f64, wanted motley::all_reduce of 4 f32 as in ^0 on a:0\n"
            "p:14: c:0: found 1 collectives of group 0, wanted 2 as on a:0");
}

/// Returns the violations of two devices; `a` begins at line 6, `b` after its buffers.
std::string violations_between(const std::string& a, const std::string& b) {
  return violations_of(
      "group 0: 0 1\n"
      "device \"a:0\" samples 4 first 0\n"
      "buffer %0: parameter f32[4] \"w\"\n" +
      a +
      "device \"b:0\" samples 4 first 4\n"
      "buffer %0: temporary f32[2, 2]\n"
      "buffer %1: temporary f32[4] view %0\n"
      "buffer %2: temporary f16[4]\n" +
      b);
}

TEST(ProgramVerify, SendsMatchReceivesInOrder) {
  EXPECT_EQ(violations_between("peer ^0: motley::send(%0, 1) \"activations\"\n",
                               "peer ^0: %0 = motley::receive(0)\n"
                               "compute ^1: aten::f(%0) wait ^0 free %0\n"),
            "");
  EXPECT_EQ(violations_between("peer ^0: motley::send(%0, 1)\n"
                               "peer ^1: motley::send(%0, 1)\n",
                               "peer ^0: %0 = motley::receive(0)\n"
                               "peer ^1: %2 = motley::receive(0)\n"),
            "p:13: b:0 ^1 motley::receive: number 1 from a:0: found 4 f16, wanted 4 f32 as sent by "
            "^1");
  EXPECT_EQ(violations_between("peer ^0: motley::send(%0, 1)\n", ""),
            "p:7: b:0: found 0 receives from a:0, wanted 1 as a:0 sends");
  EXPECT_EQ(violations_between("", "peer ^0: %0 = motley::receive(0)\n"),
            "p:6: b:0: found 1 receives from a:0, wanted 0 as a:0 sends");
}

TEST(ProgramVerify, ReceivedBuffersAreDefinedThere) {
  EXPECT_EQ(violations_between("peer ^0: motley::send(%0, 1)\n",
                               "peer ^0: %0 = motley::receive(0)\n"
                               "compute ^1: aten::f(%0)\n"),
            "p:12: b:0 ^1 aten::f: uses %0 without waiting for ^0, which defines it");
}

TEST(ProgramVerify, SendsAndReceivesHaveALaneOfTheirOwn) {
  EXPECT_EQ(violations_between("transfer ^0: motley::send(%0, 1)\n"
                               "peer ^1: motley::copy(%0)\n",
                               "compute ^0: %0 = motley::receive(0)\n"),
            "p:6: a:0 ^0 motley::send: is in the transfer lane, wanted the peer lane\n"
            "p:7: a:0 ^1 motley::copy: is in the peer lane, which is for sends and receives\n"
            "p:12: b:0 ^0 motley::receive: is in the compute lane, wanted the peer lane");
}

/// Returns the violations of c:0, one of three devices that exchange an f32[4]. %1 and %2 are
/// temporaries; `body` begins at line 8. a:0 sends `to_c` times, b:0 receives `from_c` times.
std::string violations_of_third(const std::string& body, int to_c, int from_c) {
  std::string others = "device \"a:0\" samples 4 first 0\nbuffer %0: constant f32[4] \"c\"\n";
  for (int i = 0; i < to_c; ++i) others += "peer ^" + std::to_string(i) + ": motley::send(%0, 0)\n";
  others += "device \"b:0\" samples 4 first 4\n";
  for (int i = 0; i < from_c; ++i)
    others += "buffer %" + std::to_string(i) + ": temporary f32[4]\n";
  for (int i = 0; i < from_c; ++i)
    others += "peer ^" + std::to_string(i) + ": %" + std::to_string(i) + " = motley::receive(0)\n";
  return violations_of(
      "device \"c:0\" samples 0 first 0\n"
      "buffer %0: parameter f32[4] \"w\"\n"
      "buffer %1: temporary f32[4]\n"
      "buffer %2: temporary f32[4]\n"
      "buffer %3: temporary f32[4]\n" +
      body + others);
}

TEST(ProgramVerify, StrandsWaitForEachOther) {
  // ^1 sends what ^0 receives. ^2 waits for ^1, so it and ^3 follow ^0; ^3 may write and free it.
  EXPECT_EQ(violations_of_third("peer ^0: %1 = motley::receive(1)\n"
                                "peer ^1: motley::send(%1, 2) wait ^0\n"
                                "compute ^2: aten::f(%1) wait ^1\n"
                                "compute ^3: aten::f_(%1) free %1\n",
                                1, 1),
            "");
  EXPECT_EQ(violations_of_third("peer ^0: %1 = motley::receive(1)\n"
                                "peer ^1: motley::send(%1, 2)\n"
                                "compute ^2: aten::f(%1) wait ^0\n"
                                "compute ^3: aten::f_(%1) free %1\n",
                                1, 1),
            "p:9: c:0 ^1 motley::send: uses %1 without waiting for ^0, which defines it\n"
            "p:11: c:0 ^3 aten::f_: frees %1 without waiting for ^1, which uses it");
  EXPECT_EQ(violations_of_third("peer ^0: %1 = motley::receive(1)\n"
                                "peer ^1: motley::send(%1, 2) wait ^0\n"
                                "compute ^2: aten::f_(%1) wait ^0\n",
                                1, 1),
            "p:10: c:0 ^2 aten::f_: writes %1 without waiting for ^1, which uses its memory in the "
            "peer lane");
}

TEST(ProgramVerify, ASendMayFreeWhatItSends) {
  EXPECT_EQ(violations_of_third("compute ^0: %1 = aten::f()\n"
                                "peer ^1: motley::send(%1, 2) wait ^0 free %1\n",
                                0, 1),
            "");
  // ^1 reads %1, and ^2 does not wait for ^1.
  EXPECT_EQ(violations_of_third("compute ^0: %1 = aten::f()\n"
                                "compute ^1: aten::f(%1)\n"
                                "peer ^2: motley::send(%1, 2) wait ^0 free %1\n",
                                0, 1),
            "p:10: c:0 ^2 motley::send: frees %1 without waiting for ^1, which uses it");
}

TEST(ProgramVerify, WhatOneStrandKnowsNoOtherDoes) {
  // The receives from 1 are over when ^2 starts, but the strand of sends to 2 does not know that:
  // of ^3 and ^4 only ^4 waits. Instructions of one strand are ordered.
  EXPECT_EQ(violations_of_third("peer ^0: %1 = motley::receive(1)\n"
                                "peer ^1: %2 = motley::receive(1)\n"
                                "compute ^2: aten::f(%1, %2) wait ^1\n"
                                "peer ^3: motley::send(%1, 2)\n"
                                "peer ^4: motley::send(%2, 2) wait ^1\n"
                                "peer ^5: motley::send(%1, 2)\n",
                                2, 3),
            "p:11: c:0 ^3 motley::send: uses %1 without waiting for ^0, which defines it");
  EXPECT_EQ(violations_of_third("peer ^0: %1 = motley::receive(1)\n"
                                "peer ^1: %2 = motley::receive(1) wait ^0\n",
                                2, 0),
            "p:9: c:0 ^1 motley::receive: waits for ^0 of its own strand");
}

TEST(ProgramVerify, SendsAndReceivesAreWellFormed) {
  EXPECT_EQ(violations_between("peer ^0: motley::send(%0)\n"
                               "peer ^1: motley::send(1, 1)\n"
                               "peer ^2: motley::send(%0, 2)\n"
                               "peer ^3: motley::send(%0, 0)\n"
                               "peer ^4: motley::send(%0, 1) group 0\n",
                               "peer ^0: motley::receive(0)\n"
                               "peer ^1: %1 = motley::receive(0)\n"
                               "peer ^2: %2 = motley::receive(-1)\n"),
            "p:6: a:0 ^0 motley::send: wanted a buffer and a rank\n"
            "p:7: a:0 ^1 motley::send: wanted a buffer and a rank\n"
            "p:8: a:0 ^2 motley::send: rank 2 is not one of the 2 devices\n"
            "p:9: a:0 ^3 motley::send: rank 0 is this device itself\n"
            "p:10: a:0 ^4 motley::send: is between two devices, not of a group\n"
            "p:15: b:0 ^0 motley::receive: found 0 results, wanted 1\n"
            "p:16: b:0 ^1 motley::receive: receives %1, which is a view\n"
            "p:17: b:0 ^2 motley::receive: wanted a rank");
}

/// Returns the violations of two devices of group 0. ^0 defines an f32[5], f32[3] and f32[8]; more
/// f32[5], f32[3], f32[8] and f32[2, 4] are undefined. ^1 is on line 13 for a:0, 23 for b:0.
std::string violations_of_parts(const std::string& a, const std::string& b) {
  const std::string buffers =
      "buffer %0: temporary f32[5]\n"
      "buffer %1: temporary f32[3]\n"
      "buffer %2: temporary f32[8]\n"
      "buffer %3: temporary f32[5]\n"
      "buffer %4: temporary f32[3]\n"
      "buffer %5: temporary f32[8]\n"
      "buffer %6: temporary f32[2, 4]\n"
      "compute ^0: %0, %1, %2 = aten::f()\n";
  return violations_of("group 0: 0 1\ndevice \"a:0\" samples 4 first 0\n" + buffers + a +
                       "device \"b:0\" samples 4 first 4\n" + buffers + b);
}

TEST(ProgramVerify, UnevenCollectivesMayHaveEmptyParts) {
  EXPECT_EQ(
      violations_of_parts("transfer ^1: %5 = motley::all_gather(%0, [5, 3]) group 0 wait ^0\n"
                          "compute ^2: aten::f(%5) wait ^1 free %5\n",
                          "transfer ^1: %5 = motley::all_gather(%1, [5, 3]) group 0 wait ^0\n"),
      "");
  EXPECT_EQ(
      violations_of_parts("transfer ^1: %3 = motley::reduce_scatter(%2, [5, 3]) group 0 wait ^0\n",
                          "transfer ^1: %4 = motley::reduce_scatter(%2, [5, 3]) group 0 wait ^0\n"),
      "");
  // a:0 has 5 elements and sends all to b:0, which has 3 and sends all of them to a:0.
  EXPECT_EQ(violations_of_parts(
                "transfer ^1: %4 = motley::all_to_all(%0, [0, 5], [0, 3]) group 0 wait ^0\n",
                "transfer ^1: %3 = motley::all_to_all(%1, [3, 0], [5, 0]) group 0 wait ^0\n"),
            "");
}

TEST(ProgramVerify, AMethodIsOneOfTheOperatorsAndTheSameOnAllMembers) {
  const std::string gather = "transfer ^1: %5 = motley::all_gather";
  EXPECT_EQ(violations_of_parts(gather + ".grouped(%0, [5, 3]) group 0 wait ^0\n",
                                gather + ".grouped(%1, [5, 3]) group 0 wait ^0\n"),
            "");
  EXPECT_EQ(violations_of_parts(gather + ".grouped(%0, [5, 3]) group 0 wait ^0\n",
                                gather + "(%1, [5, 3]) group 0 wait ^0\n"),
            "p:23: b:0 ^1 motley::all_gather: number 0 of group 0: found motley::all_gather of "
            "[5, 3] f32, wanted motley::all_gather.grouped of [5, 3] f32 as in ^1 on a:0");
  EXPECT_EQ(violations_of_parts(gather + ".native(%0, [5, 3]) group 0 wait ^0\n",
                                gather + ".native(%1, [5, 3]) group 0 wait ^0\n"),
            "p:13: a:0 ^1 motley::all_gather.native: 'native' is no way to carry out "
            "motley::all_gather\n"
            "p:23: b:0 ^1 motley::all_gather.native: 'native' is no way to carry out "
            "motley::all_gather");
  const std::string sum = "transfer ^1: motley::all_reduce.padded(%0) group 0 wait ^0\n";
  EXPECT_EQ(violations_of_parts(sum, sum),
            "p:13: a:0 ^1 motley::all_reduce.padded: 'padded' is no way to carry out "
            "motley::all_reduce\n"
            "p:23: b:0 ^1 motley::all_reduce.padded: 'padded' is no way to carry out "
            "motley::all_reduce");
}

TEST(ProgramVerify, APaddedAllToAllHasCellsLargeEnough) {
  const auto faults = [](const std::string& a_cell, const std::string& b_cell) {
    return violations_of_parts("transfer ^1: %4 = motley::all_to_all.padded(%0, [0, 5], [0, 3]" +
                                   a_cell + ") group 0 wait ^0\n",
                               "transfer ^1: %3 = motley::all_to_all.padded(%1, [3, 0], [5, 0]" +
                                   b_cell + ") group 0 wait ^0\n");
  };
  EXPECT_EQ(faults(", 5", ", 5"), "");
  EXPECT_EQ(faults(", 4", ", 4"),
            "p:13: a:0 ^1 motley::all_to_all.padded: found a count of 5, wanted 4 at most\n"
            "p:23: b:0 ^1 motley::all_to_all.padded: found a count of 5, wanted 4 at most");
  EXPECT_EQ(faults(", 6", ", 6"),
            "p:13: a:0 ^1 motley::all_to_all.padded: number 0 of group 0: found cells of 6, wanted "
            "5");
  EXPECT_EQ(faults(", 5", ", 6"),
            "p:23: b:0 ^1 motley::all_to_all.padded: number 0 of group 0: found "
            "motley::all_to_all.padded of 6 f32 a part, wanted motley::all_to_all.padded of 5 f32 "
            "a part as in ^1 on a:0");
  EXPECT_EQ(faults("", "").substr(0, 109),
            "p:13: a:0 ^1 motley::all_to_all.padded: wanted a buffer, two lists of counts, of a "
            "padded one the largest of ");
}

TEST(ProgramVerify, WhatIsGatheredIsDefinedThere) {
  EXPECT_EQ(
      violations_of_parts("transfer ^1: %5 = motley::all_gather(%0, [5, 3]) group 0 wait ^0\n"
                          "compute ^2: aten::f(%5)\n",
                          "transfer ^1: %5 = motley::all_gather(%1, [5, 3]) group 0 wait ^0\n"),
      "p:14: a:0 ^2 aten::f: uses %5 without waiting for ^1, which defines it");
}

TEST(ProgramVerify, CountsFitTheBuffers) {
  const auto faults = [](const std::string& instruction) {
    const std::string text = violations_of_parts("transfer ^1: " + instruction + " wait ^0\n", "");
    const std::string place = "p:13: a:0 ^1 ";
    return text.starts_with(place) ? text.substr(place.size()) : text;
  };
  EXPECT_EQ(faults("%5 = motley::all_gather(%0, [5, 3])"),
            "motley::all_gather: a collective without a group");
  EXPECT_EQ(faults("motley::all_gather(%0, [5, 3]) group 0"),
            "motley::all_gather: wanted a buffer, a list of counts and a result");
  EXPECT_EQ(faults("%5 = motley::all_to_all(%0, [5, 3]) group 0"),
            "motley::all_to_all: wanted a buffer, two lists of counts and a result");
  EXPECT_EQ(faults("%5 = motley::all_gather(%0, [5, 3, 0]) group 0"),
            "motley::all_gather: found counts of 3 members, wanted 2");
  EXPECT_EQ(faults("%5 = motley::all_gather(%0, [9, -1]) group 0"),
            "motley::all_gather: found a count of -1");
  EXPECT_EQ(faults("%5 = motley::all_gather(%0, [3, 5]) group 0"),
            "motley::all_gather: found 5 elements in %0, wanted 3");
  EXPECT_EQ(faults("%5 = motley::all_gather(%0, [5, 9223372036854775807]) group 0"),
            "motley::all_gather: found 8 elements in %5, wanted fewer than 2^63");
  EXPECT_EQ(faults("%4 = motley::reduce_scatter(%2, [5, 3]) group 0"),
            "motley::reduce_scatter: found 3 elements in %4, wanted 5");
  EXPECT_EQ(faults("%3 = motley::all_to_all(%1, [3, 0], [5, 1]) group 0"),
            "motley::all_to_all: found 5 elements in %3, wanted 6");
  EXPECT_EQ(faults("%6 = motley::all_gather(%0, [5, 3]) group 0"),
            "motley::all_gather: found 2 dimensions in %6, wanted 1");
}

TEST(ProgramVerify, PartsHaveOneDtypeAndMemoryOfTheirOwn) {
  const auto faults = [](const std::string& instruction) {
    return violations_of(
        "group 0: 0\n"
        "device \"a:0\" samples 4 first 0\n"
        "buffer %0: constant bool[4] \"c\"\n"
        "buffer %1: temporary bool[4]\n"
        "buffer %2: temporary f32[4]\n"
        "buffer %3: temporary bool[4] view %0\n" +
        instruction + " group 0\n");
  };
  EXPECT_EQ(faults("transfer ^0: %1 = motley::all_gather(%0, [4])"), "");
  EXPECT_EQ(faults("transfer ^0: %1 = motley::reduce_scatter(%0, [4])"),
            "p:9: a:0 ^0 motley::reduce_scatter: cannot sum bool");
  EXPECT_EQ(faults("transfer ^0: %2 = motley::all_gather(%0, [4])"),
            "p:9: a:0 ^0 motley::all_gather: found dtype f32 of %2, wanted bool");
  EXPECT_EQ(faults("transfer ^0: %3 = motley::all_gather(%0, [4])"),
            "p:9: a:0 ^0 motley::all_gather: defines %3, which is a view");
}

TEST(ProgramVerify, CountsAgreeAmongMembers) {
  EXPECT_EQ(
      violations_of_parts("transfer ^1: %5 = motley::all_gather(%0, [5, 3]) group 0 wait ^0\n",
                          "transfer ^1: %5 = motley::all_gather(%0, [3, 5]) group 0 wait ^0\n"),
      "p:23: b:0 ^1 motley::all_gather: number 0 of group 0: found motley::all_gather of [3, "
      "5] f32, wanted motley::all_gather of [5, 3] f32 as in ^1 on a:0");
  EXPECT_EQ(violations_of_parts(
                "transfer ^1: %4 = motley::all_to_all(%0, [1, 4], [1, 2]) group 0 wait ^0\n",
                "transfer ^1: %3 = motley::all_to_all(%1, [3, 0], [5, 0]) group 0 wait ^0\n"),
            "p:13: a:0 ^1 motley::all_to_all: number 0 of group 0: found 2 elements from b:0, "
            "wanted 3 as "
            "sent by ^1\n"
            "p:23: b:0 ^1 motley::all_to_all: number 0 of group 0: found 5 elements from a:0, "
            "wanted 4 as "
            "sent by ^1");
  EXPECT_EQ(
      violations_of_parts(
          "transfer ^1: %4 = motley::all_to_all(%0, [1, 4], [1, 2]) group 0 wait ^0\n",
          "transfer ^1: motley::all_reduce(%0) group 0 wait ^0\n"),
      "p:23: b:0 ^1 motley::all_reduce: number 0 of group 0: found motley::all_reduce of 5 f32, "
      "wanted motley::all_to_all of f32 as in ^1 on a:0");
}

TEST(ProgramVerify, LocalPartsFitTheirTensors) {
  const auto faults = [](const std::string& instruction) {
    const std::string text = violations_of(
        "device \"a:0\" samples 4 first 0\n"
        "buffer %0: constant f32[2, 5, 3] \"c\"\n"
        "buffer %1: constant f32[30] \"flat\"\n"
        "buffer %2: temporary f32[30]\n"
        "buffer %3: temporary f32[2, 5, 3]\n"
        "buffer %4: temporary f32[2, 2, 3]\n"
        "buffer %5: temporary f32[0]\n"
        "buffer %6: temporary f16[30]\n"
        "compute ^0: " +
        instruction + "\n");
    const std::string place = "p:11: a:0 ^0 motley::";
    return text.starts_with(place) ? text.substr(place.size()) : text;
  };
  EXPECT_EQ(faults("%2 = motley::cut(%0, 2, [1, 0, 4], 3)"), "");
  EXPECT_EQ(faults("%3 = motley::join(%1, 2, [1, 0, 4], 3)"), "");
  EXPECT_EQ(faults("%4 = motley::part(%0, 2, 3, 3)"), "");
  EXPECT_EQ(faults("%5 = motley::part(%0, 2, 5, 3)"), "");
  EXPECT_EQ(faults("%2 = motley::cut(%0, 2, [1, 4])"),
            "cut: wanted a buffer, before, a list of extents, after and a result");
  EXPECT_EQ(faults("%4 = motley::part(%0, 2, [3], 3)"),
            "part: wanted a buffer, before, begin, after and a result");
  EXPECT_EQ(faults("%2 = motley::cut(%0, -2, [1, 4], -3)"),
            "cut: found -2 before and -3 after, wanted none negative");
  EXPECT_EQ(faults("%2 = motley::cut(%0, 2, [6, -1], 3)"), "cut: found an extent of -1");
  EXPECT_EQ(faults("%2 = motley::cut(%0, 2, [1, 3], 3)"),
            "cut: found 30 elements in %0, wanted 24");
  EXPECT_EQ(faults("%3 = motley::cut(%0, 2, [1, 4], 3)"),
            "cut: found 3 dimensions in %3, wanted 1");
  EXPECT_EQ(faults("%2 = motley::join(%0, 2, [1, 4], 3)"),
            "join: found 3 dimensions in %0, wanted 1");
  EXPECT_EQ(faults("%6 = motley::cut(%0, 2, [1, 4], 3)"), "cut: found dtype f16 of %6, wanted f32");
  EXPECT_EQ(faults("%4 = motley::part(%0, 2, 4, 3)"),
            "part: found 2 from 4 on, wanted a part of 5");
  EXPECT_EQ(faults("%4 = motley::part(%0, 2, -1, 3)"),
            "part: found 2 from -1 on, wanted a part of 5");
  EXPECT_EQ(faults("%4 = motley::part(%0, 4, 0, 3)"),
            "part: found 30 elements in %0, wanted a multiple of 4 * 3");
  EXPECT_EQ(faults("%4 = motley::part(%0, 5, 0, 3)"),
            "part: found 12 elements in %4, wanted a multiple of 5 * 3");
  EXPECT_EQ(faults("%4 = motley::part(%0, 0, 0, 3)"), "part: found 12 elements in %4, wanted 0");
}

}  // namespace
}  // namespace motley::program

#include "motley/program/memory.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "motley/program/effects.h"
#include "motley/program/program_text.h"
#include "motley/program/strands.h"
#include "motley/testing/program_generator.h"

namespace motley::program {
namespace {

DeviceProgram parse(const std::string& body) {
  const auto program = parse_program(
      "motley.program/1\nmodel \"\" plan \"\" global_batch 8\ngroup 0: 0\n"
      "device \"a:0\" samples 8 first 0\n" +
          body,
      "p");
  EXPECT_TRUE(program) << program.error().message;
  return program->devices[0];
}

TEST(MemoryPeak, CountsTemporariesFromDefinitionToFree) {
  // u8, so that a buffer's size is its extent. Persistent: 1000.
  //   at ^0: 100 (%1)
  //   at ^1: 100 + 20 (%2), after which %1 is freed
  //   at ^2: 20 + 90 (%3)                           -> the peak is at ^1: 1120
  const MemoryPeak peak =
      find_memory_peak(parse("buffer %0: parameter u8[1000] \"w\"\n"
                             "buffer %1: input u8[100] \"x\"\n"
                             "buffer %2: temporary u8[20]\n"
                             "buffer %3: temporary u8[90]\n"
                             "compute ^0: %1 = motley::load(0)\n"
                             "compute ^1: %2 = aten::f(%1, %0) free %1\n"
                             "compute ^2: %3 = aten::f(%2) free %2 %3\n"));
  EXPECT_EQ(peak.total, Bytes(1120));
  EXPECT_EQ(peak.persistent, Bytes(1000));
  EXPECT_EQ(peak.at, InstructionId(1));
  const std::vector<std::pair<BufferId, Bytes>> largest = {
      {BufferId(0), Bytes(1000)}, {BufferId(1), Bytes(100)}, {BufferId(2), Bytes(20)}};
  EXPECT_EQ(peak.largest, largest);
}

TEST(MemoryPeak, ARootLivesUntilItsLastViewIsFreed) {
  // %0 is freed at ^1 but its view %1 lives on; the view itself costs nothing.
  //   at ^2: 100 (%0) + 50 (%2) = 150
  //   at ^3: 100 (%0, freed with %1 after it) + 50 + 7 (%3) = 157 -> the peak
  //   at ^4: 50 + 7 + 60 = 117
  const MemoryPeak peak =
      find_memory_peak(parse("buffer %0: temporary u8[100]\n"
                             "buffer %1: temporary u8[10, 10] view %0\n"
                             "buffer %2: temporary u8[50]\n"
                             "buffer %3: temporary u8[7]\n"
                             "buffer %4: temporary u8[60]\n"
                             "compute ^0: %0 = aten::f()\n"
                             "compute ^1: %1 = aten::view(%0, [10, 10]) free %0\n"
                             "compute ^2: %2 = aten::f()\n"
                             "compute ^3: %3 = aten::f(%1) free %1\n"
                             "compute ^4: %4 = aten::f()\n"));
  EXPECT_EQ(peak.total, Bytes(157));
  EXPECT_EQ(peak.at, InstructionId(3));
}

TEST(MemoryPeak, ScratchCanMoveThePeak) {
  // At ^0 100 and 10 of scratch, at ^1 100 + 20 and none, at ^2 20 + 30 and 200: 250.
  const DeviceProgram program = parse(
      "buffer %0: temporary u8[100]\n"
      "buffer %1: temporary u8[20]\n"
      "buffer %2: temporary u8[30]\n"
      "compute ^0: %0 = aten::f()\n"
      "compute ^1: %1 = aten::f(%0) free %0\n"
      "compute ^2: %2 = aten::f(%1) free %1 %2\n");
  EXPECT_EQ(find_memory_peak(program).total, Bytes(120));
  const MemoryPeak peak = find_memory_peak(program, std::vector{Bytes(10), Bytes(0), Bytes(200)});
  EXPECT_EQ(peak.total, Bytes(250));
  EXPECT_EQ(peak.scratch, Bytes(200));
  EXPECT_EQ(peak.at, InstructionId(2));
}

/// Returns the first of two devices, with program `body`; `second` sends and receives to match.
DeviceProgram parse_first(const std::string& body, const std::string& second) {
  const auto program = parse_program(
      "motley.program/1\nmodel \"\" plan \"\" global_batch 8\n"
      "device \"a:0\" samples 8 first 0\n" +
          body + "device \"b:0\" samples 0 first 0\nbuffer %0: constant u8[100] \"c\"\n" + second,
      "p");
  EXPECT_TRUE(program) << program.error().message;
  return program->devices[0];
}

TEST(MemoryPeak, WhatIsReceivedIsThereFromTheComputeThatTheReceiveWaitsForOn) {
  // ^1 waits for nothing: %1 is there from ^0 on.
  const std::string buffers =
      "buffer %0: temporary u8[1]\nbuffer %1: temporary u8[100]\nbuffer %2: temporary u8[1000]\n";
  EXPECT_EQ(
      find_memory_peak(parse_first(buffers + "compute ^0: %0 = aten::f() free %0\n"
                                             "peer ^1: %1 = motley::receive(1)\n"
                                             "compute ^2: aten::f()\n"
                                             "compute ^3: %2 = aten::f(%1) wait ^1 free %1 %2\n",
                                   "peer ^0: motley::send(%0, 0)\n"),
                       std::vector{Bytes(5000), Bytes(0), Bytes(0), Bytes(0)})
          .total,
      Bytes(5101));  // at ^0: 1, the 100 that arrive meanwhile, 5000
  // ^1 waits for ^0: %1 is live from ^2 on, with the 5000 of ^2.
  const MemoryPeak later =
      find_memory_peak(parse_first(buffers + "compute ^0: %0 = aten::f() free %0\n"
                                             "peer ^1: %1 = motley::receive(1) wait ^0\n"
                                             "compute ^2: aten::f()\n"
                                             "compute ^3: %2 = aten::f(%1) wait ^1 free %1 %2\n",
                                   "peer ^0: motley::send(%0, 0)\n"),
                       std::vector{Bytes(5000), Bytes(0), Bytes(5000), Bytes(0)});
  EXPECT_EQ(later.total, Bytes(5100));
  EXPECT_EQ(later.at, InstructionId(2));
  EXPECT_EQ(later.exchange, Bytes(100));
}

TEST(MemoryPeak, ASendHoldsItsBufferUntilComputeWaitsForIt) {
  const std::string buffers = "buffer %0: temporary u8[100]\nbuffer %1: temporary u8[10]\n";
  const auto peak = [&](const std::string& third) {
    return find_memory_peak(
               parse_first(buffers +
                               "compute ^0: %0 = aten::f()\n"
                               "peer ^1: motley::send(%0, 1) wait ^0 free %0\n"
                               "compute ^2: %1 = aten::f() " +
                               third + " free %1\n",
                           "buffer %1: temporary u8[100]\npeer ^0: %1 = motley::receive(0)\n"),
               std::vector{Bytes(0), Bytes(0), Bytes(50)})
        .total;
  };
  // At ^0 100; at ^2 10 + 50, plus 100 without the wait.
  EXPECT_EQ(peak("wait ^1"), Bytes(100));
  EXPECT_EQ(peak(""), Bytes(160));
}

TEST(MemoryPeak, ComputeWaitsForWhatASendWaitedFor) {
  // ^2 sends what ^1 receives and frees %0. ^4 waits only for ^2. At ^0 and ^3 100, at ^4 50.
  EXPECT_EQ(
      find_memory_peak(parse_first("buffer %0: temporary u8[100]\nbuffer %1: temporary u8[50]\n"
                                   "compute ^0: aten::f()\n"
                                   "peer ^1: %0 = motley::receive(1)\n"
                                   "peer ^2: motley::send(%0, 1) wait ^1 free %0\n"
                                   "compute ^3: aten::f()\n"
                                   "compute ^4: %1 = aten::f() wait ^2 free %1\n",
                                   "buffer %1: temporary u8[100]\npeer ^0: motley::send(%0, 0)\n"
                                   "peer ^1: %1 = motley::receive(0)\n"))
          .total,
      Bytes(100));
}

TEST(MemoryPeak, NamesItsParts) {
  // At ^3 (pack): w 100, its momentum 100, running 8, gradient 100, packed 100; x (16) is freed at
  // ^1, the activation (24) at ^2. In all 408; at ^1: 208 + 16 + 24 = 248, at ^2 208 + 24 + 100.
  const MemoryPeak peak =
      find_memory_peak(parse("buffer %0: parameter u8[100] \"w\"\n"
                             "buffer %1: state u8[100] \"w/momentum\"\n"
                             "buffer %2: model_buffer u8[8] \"running\"\n"
                             "buffer %3: input u8[16] \"x\"\n"
                             "buffer %4: temporary u8[24]\n"
                             "buffer %5: temporary u8[100]\n"
                             "buffer %6: temporary u8[100]\n"
                             "buffer %7: temporary u8[100] view %6\n"
                             "compute ^0: %3 = motley::load(0)\n"
                             "compute ^1: %4 = aten::f(%3, %2) free %3\n"
                             "compute ^2: %5 = aten::f(%4) free %4\n"
                             "compute ^3: %6 = motley::pack([%5]) free %5\n"
                             "compute ^4: %7 = motley::unpack(%6) list\n"
                             "compute ^5: motley::update(\"sgd\", [%0], [%7], [%1]) free %6 %7\n"));
  EXPECT_EQ(peak.total, Bytes(408));
  EXPECT_EQ(peak.at, InstructionId(3));
  EXPECT_EQ(peak.parameters, Bytes(100));
  EXPECT_EQ(peak.states, Bytes(100));
  EXPECT_EQ(peak.buffers, Bytes(8));
  EXPECT_EQ(peak.inputs, Bytes(0));
  EXPECT_EQ(peak.activations, Bytes(0));
  EXPECT_EQ(peak.gradients, Bytes(100));
  EXPECT_EQ(peak.exchange, Bytes(100));
  EXPECT_EQ(peak.persistent, Bytes(208));
}

TEST(MemoryPeak, ATransferHoldsItsBufferUntilSomebodyWaitsForIt) {
  // The sum ^1 frees its own buffer of 100, which is live until ^3 waits for the sum:
  //   at ^0: 100;  at ^2: 100 + 30 = 130 -> the peak;  at ^3: 30 + 80 = 110
  const std::string before =
      "buffer %0: temporary u8[100]\n"
      "buffer %1: temporary u8[30]\n"
      "buffer %2: temporary u8[80]\n"
      "compute ^0: %0 = aten::f()\n"
      "transfer ^1: motley::all_reduce(%0) group 0 wait ^0 free %0\n"
      "compute ^2: %1 = aten::f()\n";
  const MemoryPeak waited =
      find_memory_peak(parse(before + "compute ^3: %2 = aten::f() wait ^1\n"));
  EXPECT_EQ(waited.total, Bytes(130));
  EXPECT_EQ(waited.at, InstructionId(2));
  // Without a wait it lives to the end of the step: 100 + 30 + 80 = 210.
  EXPECT_EQ(find_memory_peak(parse(before + "compute ^3: %2 = aten::f()\n")).total, Bytes(210));
}

TEST(MemoryPeak, WaitingForALaterTransferWaitsForTheEarlierOnes) {
  // ^4 waits for ^3, which follows ^1 in its lane, so %0 is free at ^4:
  //   at ^2: 100 + 10 = 110 -> the peak;  at ^4: 10 (%1 unfreed) + 80 = 90
  const MemoryPeak peak =
      find_memory_peak(parse("buffer %0: temporary u8[100]\n"
                             "buffer %1: temporary u8[10]\n"
                             "buffer %2: temporary u8[80]\n"
                             "compute ^0: %0 = aten::f()\n"
                             "transfer ^1: motley::all_reduce(%0) group 0 wait ^0 free %0\n"
                             "compute ^2: %1 = aten::f()\n"
                             "transfer ^3: motley::all_reduce(%1) group 0 wait ^2\n"
                             "compute ^4: %2 = aten::f() wait ^3\n"));
  EXPECT_EQ(peak.total, Bytes(110));
  EXPECT_EQ(peak.at, InstructionId(2));
}

TEST(MemoryPeak, WithoutInstructionsOnlyWhatPersistsIsThere) {
  const MemoryPeak peak =
      find_memory_peak(parse("buffer %0: state u8[5] \"s\"\nbuffer %1: temporary u8[100]\n"));
  EXPECT_EQ(peak.total, Bytes(5));
  EXPECT_EQ(peak.persistent, Bytes(5));
  EXPECT_TRUE(peak.at.is_none());
}

/// Returns the peak of certainly live roots when lanes run in list order and free as listed.
std::int64_t replay(const DeviceProgram& program) {
  std::vector<int> handles(program.buffers.size(), 0);  // by root
  std::int64_t live = 0, most = 0;
  for (const Buffer& buffer : program.buffers)
    if (buffer.kind != BufferKind::kTemporary && buffer.kind != BufferKind::kInput)
      live += buffer.bytes().value;
  const auto count = [&](BufferId id, int change) {
    const BufferId root = storage_of(program, id);
    const BufferKind kind = program.buffer(root).kind;
    if (kind != BufferKind::kTemporary && kind != BufferKind::kInput) return;
    const bool was_live = handles[root.index()] > 0;
    handles[root.index()] += change;
    const bool is_live = handles[root.index()] > 0;
    if (was_live != is_live) live += program.buffer(root).bytes().value * (is_live ? 1 : -1);
  };
  most = live;
  for (const Instruction& instruction : program.instructions) {
    for (const BufferId id : instruction.outputs) count(id, 1);
    most = std::max(most, live);
    for (const BufferId id : instruction.frees) count(id, -1);
  }
  return most;
}

/// Finds, by instruction, what has finished when it starts: what it waits for, what precedes it in
/// its strand, and what had finished when those started.
std::vector<std::vector<bool>> find_finished(const DeviceProgram& program) {
  const std::size_t count = program.instructions.size();
  std::vector<std::vector<bool>> finished(count, std::vector<bool>(count, false));
  for (std::size_t i = 0; i < count; ++i) {
    const auto follow = [&](std::size_t before) {
      finished[i][before] = true;
      for (std::size_t k = 0; k < before; ++k)
        if (finished[before][k]) finished[i][k] = true;
    };
    for (std::size_t k = 0; k < i; ++k)
      if (strand_of(program.instructions[k]) == strand_of(program.instructions[i])) follow(k);
    for (const InstructionId wait : program.instructions[i].waits) follow(wait.index());
  }
  return finished;
}

/// Computes the peak by its definition, buffer by buffer and position by position.
std::int64_t peak_by_definition(const DeviceProgram& program) {
  const std::size_t count = program.instructions.size();
  const auto finished = find_finished(program);
  std::vector<std::size_t> compute;
  for (std::size_t i = 0; i < count; ++i)
    if (program.instructions[i].lane == Lane::kCompute) compute.push_back(i);
  const auto begin_of = [&](std::size_t i) {
    std::size_t position = 0;
    while (position < compute.size() && finished[i][compute[position]]) ++position;
    return position;
  };
  const auto end_of = [&](std::size_t i) {
    if (program.instructions[i].lane == Lane::kCompute) return begin_of(i) + 1;
    for (std::size_t position = 0; position < compute.size(); ++position)
      if (finished[compute[position]][i]) return position;
    return compute.size() + 1;
  };
  std::vector<std::int64_t> live(compute.size() + 1, 0);
  for (std::size_t root = 0; root < program.buffers.size(); ++root) {
    const BufferId id(static_cast<std::int64_t>(root));
    if (!program.buffer(id).view_of.is_none()) continue;
    std::size_t begin = live.size(), end = 0;
    if (is_persistent(program.buffer(id).kind)) begin = 0, end = live.size();
    std::size_t handles = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Instruction& instruction = program.instructions[i];
      bool uses = false;
      const auto look = [&](BufferId used) { uses = uses || storage_of(program, used) == id; };
      for_each_buffer(instruction.arguments, look);
      for (const BufferId made : instruction.outputs) {
        look(made);
        if (storage_of(program, made) != id) continue;
        ++handles;
        if (made == id) begin = begin_of(i);
      }
      for (const BufferId freed : instruction.frees) {
        look(freed);
        if (storage_of(program, freed) == id) --handles;
      }
      if (uses) end = std::max({end, end_of(i), instruction.outputs.empty() ? 0 : begin_of(i) + 1});
    }
    if (handles > 0) end = live.size();
    for (std::size_t position = begin; position < std::min(end, live.size()); ++position)
      live[position] += program.buffer(id).bytes().value;
  }
  return *std::max_element(live.begin(), live.end());
}

RC_GTEST_PROP(MemoryPeak, EqualsItsDefinition, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const Program program =
      testing::ProgramGenerator(seed).draw(*rc::gen::inRange<std::size_t>(2, 60));
  for (const DeviceProgram& device : program.devices)
    RC_ASSERT(find_memory_peak(device).total.value == peak_by_definition(device));
}

bool has_peers(const DeviceProgram& program) { return find_strands(program).all.size() > 2; }

RC_GTEST_PROP(MemoryPeak, EqualsAReplayWhenOnlyComputeFrees, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const Program program =
      testing::ProgramGenerator(seed).draw(*rc::gen::inRange<std::size_t>(2, 60));
  for (const DeviceProgram& device : program.devices) {
    const MemoryPeak peak = find_memory_peak(device);
    if (!has_peers(device)) RC_ASSERT(peak.total.value == replay(device));
    std::int64_t sum = 0;
    for (const auto& [id, bytes] : peak.largest) sum += bytes.value;
    RC_ASSERT(sum <= peak.total.value);
    if (peak.largest.size() < 8) RC_ASSERT(sum == peak.total.value);
  }
}

TEST(MemoryPeak, WhatATransferDefinesLivesFromItsBegin) {
  // The gather begins after ^0. At ^2, which runs beside it and makes 20 (%2): 7 (%0) + 7 (%1) + 20
  // = 34. At ^3: 7 (%0) + 7 + 20 + 1 (%3) = 35; ^3 frees them.
  const MemoryPeak peak =
      find_memory_peak(parse("buffer %0: temporary u8[7]\n"
                             "buffer %1: temporary u8[7]\n"
                             "buffer %2: temporary u8[20]\n"
                             "buffer %3: temporary u8[1]\n"
                             "compute ^0: %0 = aten::f()\n"
                             "transfer ^1: %1 = motley::all_gather(%0, [7]) group 0 wait ^0\n"
                             "compute ^2: %2 = aten::f()\n"
                             "compute ^3: %3 = aten::f(%1, %2) wait ^1 free %0 %1 %2 %3\n"));
  EXPECT_EQ(peak.total, Bytes(35));
  EXPECT_EQ(peak.exchange, Bytes(7));
  EXPECT_EQ(peak.activations, Bytes(28));
}

}  // namespace
}  // namespace motley::program

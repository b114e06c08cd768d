#include "motley/run/torch/worker_session.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace motley::run {
namespace {

TEST(SetTf32, SaysWhatBothLibrariesDo) {
  at::Context& context = at::globalContext();
  for (const bool may : {true, false}) {
    set_tf32(may);
    EXPECT_EQ(context.allowTF32CuBLAS(), may);
    EXPECT_EQ(context.allowTF32CuDNN(), may);
  }
}

TEST(CompareSequences, AreThoseOfTheMembersOfEachGroupAndOfBothEnds) {
  // Ranks 0 and 1 are a group, 1 and 2 another; 0 sends to 2.
  const std::vector<program::Group> groups = {{{Rank(0), Rank(1)}}, {{Rank(1), Rank(2)}}};
  std::vector<ExchangeSequences> of_rank = {
      {{{0}, "a"}, {{0, 2}, "s"}}, {{{0}, "a"}, {{1}, "b"}}, {{{1}, "b"}, {{0, 2}, "s"}}};
  EXPECT_TRUE(compare_sequences(of_rank, groups).has_value());
  of_rank[2][{0, 2}] = "t";
  EXPECT_EQ(compare_sequences(of_rank, groups).error().message,
            "what rank 0, which sends, and rank 2 exchange: rank 2 has t, rank 0 has s");
  of_rank[2].erase({0, 2});
  EXPECT_EQ(compare_sequences(of_rank, groups).error().message,
            "what rank 0, which sends, and rank 2 exchange: rank 2 has nothing, rank 0 has s");
  of_rank[0].erase({0, 2});
  of_rank[2][{1}] = "c";
  EXPECT_EQ(compare_sequences(of_rank, groups).error().message,
            "what the members of group 1 exchange: rank 2 has c, rank 1 has b");
}

TEST(AddSequences, TellGroupsAndStrandsApart) {
  program::DeviceProgram program;
  program.buffers = {{program::BufferKind::kTemporary, DType::kF32, {2, 3}},
                     {program::BufferKind::kTemporary, DType::kF16, {4}}};
  program::Instruction sum{Lane::kTransfer, "motley::all_reduce", "", {{BufferId(0)}}};
  sum.group = GroupId(3);
  program.instructions = {{Lane::kPeer, "motley::receive", "", {{std::int64_t{5}}}, {BufferId(1)}},
                          sum,
                          {Lane::kPeer, "motley::send", "", {{BufferId(0)}, {std::int64_t{5}}}}};
  ExchangeSequences sequences;
  add_sequences(program, 2, sequences);
  add_sequences(program, 2, sequences);  // of another program of the rank
  const ExchangeSequences wanted = {{{3}, "motley::all_reduce f32x6\nmotley::all_reduce f32x6\n"},
                                    {{5, 2}, "f16x4\nf16x4\n"},
                                    {{2, 5}, "f32x6\nf32x6\n"}};
  EXPECT_EQ(sequences, wanted);
}

TEST(CanUseNccl, WantsAGpuOfItsOwnForEachRank) {
  const WorkerDevice first{.kind = "cuda"}, second{.kind = "cuda", .local_index = 1},
      elsewhere{.kind = "cuda", .host = "b"}, cpu{.kind = "cpu"};
  EXPECT_TRUE(can_use_nccl({first, second, elsewhere}));
  EXPECT_FALSE(can_use_nccl({first, second, first}));
  EXPECT_FALSE(can_use_nccl({first, cpu}));
  // One UUID is one GPU, even under another name of its host.
  WorkerDevice here = first, there = elsewhere;
  here.uuid = there.uuid = "GPU-a";
  EXPECT_FALSE(can_use_nccl({here, there}));
  EXPECT_FALSE(can_use_nccl({cpu, cpu}));
}

}  // namespace
}  // namespace motley::run

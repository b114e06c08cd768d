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

TEST(CanUseNccl, WantsAGpuOfItsOwnForEachRank) {
  const WorkerDevice first{.kind = "cuda"}, second{.kind = "cuda", .local_index = 1},
      elsewhere{.kind = "cuda", .host = "b"}, cpu{.kind = "cpu"};
  EXPECT_TRUE(can_use_nccl({first, second, elsewhere}));
  EXPECT_FALSE(can_use_nccl({first, second, first}));
  EXPECT_FALSE(can_use_nccl({first, cpu}));
  // One UUID is one GPU, also by another name of its host.
  WorkerDevice here = first, there = elsewhere;
  here.uuid = there.uuid = "GPU-a";
  EXPECT_FALSE(can_use_nccl({here, there}));
  EXPECT_FALSE(can_use_nccl({cpu, cpu}));
}

}  // namespace
}  // namespace motley::run

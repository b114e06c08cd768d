#include "motley/run/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "motley/base/file.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "motley-checkpoint-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(dir_); }

  Result<std::string> write(std::int64_t step, std::size_t floats = 4) {
    values_.assign(floats, static_cast<float>(step));
    const NamedTensor weight{"w",
                             {DType::kF32,
                              {static_cast<std::int64_t>(floats)},
                              std::as_bytes(std::span<const float>(values_))}};
    const NamedTensor moment{"w/momentum", weight.tensor};
    state_.step = step;
    return CheckpointStore(dir_).write(state_, std::vector{weight}, std::vector{moment});
  }

  std::string resume_error() {
    const auto opened = CheckpointStore(dir_).open_latest();
    EXPECT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().kind, ErrorKind::kUsage);
    return opened.error().message;
  }

  std::string dir_;
  std::vector<float> values_;
  CheckpointState state_{
      .seed = ~std::uint64_t{0}, .shuffle = 3, .global_batch = 8, .model_hash = "abcd"};
};

TEST_F(CheckpointTest, NoneYet) {
  const auto opened = CheckpointStore(dir_).open_latest();
  ASSERT_TRUE(opened.has_value());
  EXPECT_FALSE(opened->has_value());
}

TEST_F(CheckpointTest, WritesAndReads) {
  ASSERT_TRUE(write(20).has_value());
  const auto opened = CheckpointStore(dir_).open_latest();
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  EXPECT_EQ((*opened)->path, dir_ + "/checkpoint/step-00000020");
  EXPECT_EQ((*opened)->state, state_);
  const TensorView& weight = (*opened)->model.tensors().at("w");
  EXPECT_EQ(weight.shape, std::vector<std::int64_t>{4});
  EXPECT_EQ(reinterpret_cast<const float*>(weight.bytes.data())[3], 20.0F);
  EXPECT_TRUE((*opened)->optimizer.tensors().contains("w/momentum"));
}

TEST_F(CheckpointTest, KeepsTwo) {
  for (const std::int64_t step : {10, 20, 30}) ASSERT_TRUE(write(step).has_value());
  EXPECT_FALSE(fs::exists(dir_ + "/checkpoint/step-00000010"));
  EXPECT_TRUE(fs::exists(dir_ + "/checkpoint/step-00000020"));
  EXPECT_EQ(CheckpointStore(dir_).latest(), dir_ + "/checkpoint/step-00000030");
}

TEST_F(CheckpointTest, AnEarlierStepAfterStartingAnewIsTheLatest) {
  ASSERT_TRUE(write(100).has_value());
  ASSERT_TRUE(write(10).has_value());
  EXPECT_EQ(CheckpointStore(dir_).latest(), dir_ + "/checkpoint/step-00000010");
}

TEST_F(CheckpointTest, DamagedFileIsNamedWithTheWayOut) {
  ASSERT_TRUE(write(10).has_value());
  ASSERT_TRUE(write(20).has_value());
  const std::string bad = dir_ + "/checkpoint/step-00000020/model.safetensors";
  std::fstream file(bad, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\x7f');
  file.close();
  const std::string message = resume_error();
  const std::string ending = ": the file was damaged or changed; remove " + dir_ +
                             "/checkpoint/step-00000020 and run again to go on from step-00000010";
  EXPECT_TRUE(message.starts_with(bad + ": found hash ")) << message;
  EXPECT_TRUE(message.ends_with("(state.json)" + ending)) << message;
  // Doing what the message says helps.
  fs::remove_all(dir_ + "/checkpoint/step-00000020");
  const auto opened = CheckpointStore(dir_).open_latest();
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ((*opened)->state.step, 10);
}

TEST_F(CheckpointTest, MissingStateIsNamed) {
  ASSERT_TRUE(write(20).has_value());
  fs::remove(dir_ + "/checkpoint/step-00000020/state.json");
  EXPECT_EQ(resume_error(), dir_ + "/checkpoint/step-00000020/state.json: no such file; remove " +
                                dir_ +
                                "/checkpoint/step-00000020 and run again to start from the "
                                "beginning");
}

TEST_F(CheckpointTest, FullDiskKeepsTheOldOne) {
  ASSERT_TRUE(write(10).has_value());
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 16, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const auto written = write(20, 1 << 20);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().kind, ErrorKind::kRuntime);
  const std::string half = dir_ + "/checkpoint/step-00000020.tmp";
  const std::string start = "checkpoint of step 20 not written (" + dir_ +
                            "/checkpoint/step-00000010 is kept): " + half + "/model.safetensors: ";
  EXPECT_TRUE(written.error().message.starts_with(start)) << written.error().message;
  EXPECT_FALSE(fs::exists(half));
  const auto opened = CheckpointStore(dir_).open_latest();
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ((*opened)->state.step, 10);
}

TEST_F(CheckpointTest, PublishesTheModel) {
  const auto path = write(20);
  ASSERT_TRUE(CheckpointStore(dir_).publish(*path).has_value());
  ASSERT_TRUE(CheckpointStore(dir_).publish(*path).has_value());
  EXPECT_EQ(*read_file(dir_ + "/model.safetensors"), *read_file(*path + "/model.safetensors"));
}

TEST_F(CheckpointTest, RefusesAnotherJob) {
  ASSERT_TRUE(write(20).has_value());
  const auto opened = CheckpointStore(dir_).open_latest();
  CheckpointState other = state_;
  EXPECT_TRUE(verify_checkpoint(**opened, other).has_value());
  other.global_batch = 16;
  EXPECT_EQ(verify_checkpoint(**opened, other).error().message,
            dir_ +
                "/checkpoint/step-00000020 belongs to another job: found global batch 8, wanted "
                "16; use another --run-dir, or --resume never to start anew here");
}

}  // namespace
}  // namespace motley::run

#include "motley/run/checkpoints/checkpoint_carrier.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "motley/testing/forked_agent.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;

/// An agent of "host b", a local process, with rank 0's run directory.
class CheckpointCarrierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "motley-carrier-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    agent_.emplace("b", dir_ + "/cache");
    there_.emplace(agent_->link().scratch() + "/run");
    carrier_.emplace(agent_->link(), dir_ + "/here");
  }
  void TearDown() override {
    carrier_.reset();
    agent_.reset();
    fs::remove_all(dir_);
  }

  /// Writes a checkpoint as rank 0 and reports it.
  void write(std::int64_t step, std::optional<Best> best = {}) {
    const std::vector<float> values(1 << 18, static_cast<float>(step));
    const std::vector<SavedTensor> tensors = {
        {{"w", {DType::kF32, {1 << 18}, std::as_bytes(std::span(values))}}, {}}};
    const CheckpointState state{
        .step = step, .samples = 2 * step, .global_batch = 2, .model_hash = "m", .best = best};
    const auto path = there_->write(state, {.model = tensors, .optimizer = {}});
    ASSERT_TRUE(path.has_value()) << path.error().message;
    if (best && best->step == step) {
      ASSERT_TRUE(there_->keep_best(*path).has_value());
      EXPECT_FALSE(carrier_->keeps_back({"evaluation", 0, {{"step", step}, {"is_best", true}}}));
    }
    EXPECT_TRUE(carrier_->keeps_back({"checkpoint", 0, {{"step", step}, {"path", *path}}}));
  }

  /// Returns the steps that were brought, when there is no more to do.
  Result<std::vector<std::int64_t>> bring() {
    std::vector<std::int64_t> steps;
    while (!carrier_->is_idle()) {
      MOTLEY_ASSIGN(const std::vector<WorkerEvent> events, carrier_->get_on());
      for (const WorkerEvent& event : events) {
        EXPECT_TRUE(fs::exists(event.fields.value("path", "") + "/state.json"));
        EXPECT_NE(event.fields.value("note", "").find("host b: 1 MiB"), std::string::npos)
            << event.fields["note"];
        steps.push_back(event.fields["step"]);
      }
      ::usleep(1000);
    }
    return steps;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    std::error_code code;
    for (const auto& each : fs::directory_iterator(dir_ + "/here/checkpoint", code))
      names.push_back(each.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  using Steps = std::vector<std::int64_t>;
  using Names = std::vector<std::string>;
  std::string dir_;
  std::optional<ForkedAgent> agent_;
  std::optional<CheckpointStore> there_;
  std::optional<CheckpointCarrier> carrier_;
};

TEST_F(CheckpointCarrierTest, EachBecomesTheLatestHereAndOldOnesGo) {
  for (const std::int64_t step : {2, 4, 6}) {
    write(step);
    EXPECT_EQ(bring().value(), Steps{step});
    const auto found = CheckpointStore(dir_ + "/here").open_latest().value();
    EXPECT_EQ(found->state.step, step);
  }
  EXPECT_EQ(names(), (Names{"latest", "step-00000004", "step-00000006"}));
}

TEST_F(CheckpointCarrierTest, WhereTheyComeFasterTheNewestAndTheBestAreBrought) {
  write(1, Best{0.5, 1, 0});
  for (const std::int64_t step : {2, 3, 4}) write(step, Best{0.5, 1, step - 1});
  EXPECT_EQ(bring().value(), (Steps{1, 4}));
  EXPECT_EQ(names(), (Names{"best", "latest", "step-00000001", "step-00000004"}));
  EXPECT_EQ(fs::path(CheckpointStore(dir_ + "/here").best()).filename(), "step-00000001");
}

// Rank 0 removes old checkpoints, however slow the network is.
TEST_F(CheckpointCarrierTest, OneThatIsRemovedOnItsWayComesWhole) {
  write(1);
  ASSERT_TRUE(carrier_->get_on().has_value());  // it is requested
  agent_->settle();
  fs::remove_all(agent_->link().scratch() + "/run/checkpoint/step-00000001");
  EXPECT_EQ(bring().value(), Steps{1});
}

TEST_F(CheckpointCarrierTest, OneThatWasGoneBeforeItWasAskedForIsForgotten) {
  write(1);
  fs::remove_all(agent_->link().scratch() + "/run/checkpoint");
  EXPECT_EQ(bring().value(), Steps{});
  EXPECT_EQ(names(), Names{});
}

TEST_F(CheckpointCarrierTest, OneThatComesDamagedIsRefusedAndTheEarlierKept) {
  write(1);
  ASSERT_TRUE(bring().has_value());
  write(2);
  std::ofstream(agent_->link().scratch() + "/run/checkpoint/step-00000002/model.safetensors",
                std::ios::app)
      << "x";
  const Error error = bring().error();
  EXPECT_EQ(error.code, "run.checkpoint-write");
  EXPECT_NE(error.message.find("checkpoint of step 2 not written"), std::string::npos);
  EXPECT_NE(error.message.find("step-00000001 is kept"), std::string::npos) << error.message;
  EXPECT_TRUE(carrier_->is_idle());
  EXPECT_EQ(names(), (Names{"latest", "step-00000001"}));
}

TEST_F(CheckpointCarrierTest, ALostHostLeavesNothingHalf) {
  write(1);
  agent_->kill();
  const auto done = bring();
  EXPECT_FALSE(done.has_value());
  EXPECT_NE(done.error().message.find("host b: connection ended"), std::string::npos)
      << done.error().message;
  EXPECT_EQ(names(), Names{});
}

}  // namespace
}  // namespace motley::run

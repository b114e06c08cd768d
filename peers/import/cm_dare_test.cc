#include "peers/import/cm_dare.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace motley::peers {
namespace {

using ::testing::ElementsAre;

/// A folder that is removed after the test.
class CmDare : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "cm_dare_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string folder_;
};

constexpr const char* kColumns =
    "GPU TFLOPS,Model FLOPs,Max Tensor Size (MB),Number of Parameters,Step Time (s),GPU (temp),"
    "Model (temp),Number of Tensors\r\n";

TEST_F(CmDare, JoinsReadingsOfAModelOnADevice) {
  write("speed/0latency_norm_computation.csv",
        std::string(kColumns) +
            "4,1e9,,3600,0.5,K80,custom2,75\r\n4,1e9,,3600,0.7,K80,custom2,75\r\n"
            "9,1e9,0.5625,3600,0.2,P100,custom2,\r\n");
  const auto speeds = read_cm_dare_speeds(folder_);
  ASSERT_TRUE(speeds.has_value()) << speeds.error().message;
  ASSERT_EQ(speeds->size(), 2u);
  EXPECT_EQ((*speeds)[0].model, "custom2");
  EXPECT_EQ((*speeds)[0].gpu, "K80");
  EXPECT_DOUBLE_EQ((*speeds)[0].peak_flops_per_second, 4e12);
  EXPECT_THAT((*speeds)[0].step_s, ElementsAre(0.5, 0.7));
  // The P100's row lacks tensors, the K80's the largest tensor: each serves both. 0.5625 MiB are
  // 147456 numbers = 3 * 3 * 128 * 128: the first stage has 128 / 4 channels.
  EXPECT_DOUBLE_EQ((*speeds)[1].tensors, 75);
  EXPECT_EQ((*speeds)[0].channels, 32);
  EXPECT_EQ((*speeds)[0].session, -1);
}

TEST_F(CmDare, GuessesTheChannelsFromTheParameters) {
  // Mean width sqrt(2926986 / (3 * 216)) = 67.2; / 2.25 = 29.9, nearest multiple of 16: 32.
  write("speed/0latency_norm_computation.filtered.csv",
        std::string(kColumns) + "4,1e9,,2926986,0.5,K80,shakesmall,216\n");
  const auto speeds = read_cm_dare_speeds(folder_);
  ASSERT_TRUE(speeds.has_value()) << speeds.error().message;
  EXPECT_EQ((*speeds)[0].channels, 32);
}

TEST_F(CmDare, SessionsAreMeasurementsOfOneDeviceWithinHours) {
  write("speed/0latency_norm_computation.csv",
        std::string(kColumns) +
            "4,1e9,,3600,0.5,K80,Res15,50\n4,1e9,,3600,0.5,K80,custom2,75\n"
            "4,1e9,,3600,0.5,K80,shake small 32d,75\n9,1e9,,3600,0.5,P100,Res15,50\n");
  write("speed/traces/k80_res15.csv", "Wall time,Step,Value\n100000,1,9\n");
  write("speed/traces/k80_cus2.csv", "Wall time,Step,Value\n103600,1,9\n");         // an hour later
  write("speed/traces/k80_shake32_d32.csv", "Wall time,Step,Value\n133600,1,9\n");  // 30000 s later
  write("speed/traces/p100_res15.csv", "Wall time,Step,Value\n100000,1,9\n");
  const auto speeds = read_cm_dare_speeds(folder_);
  ASSERT_TRUE(speeds.has_value()) << speeds.error().message;
  std::vector<int> sessions;
  for (const auto& speed : *speeds) sessions.push_back(speed.session);
  EXPECT_THAT(sessions, ElementsAre(0, 0, 1, 2));
}

TEST_F(CmDare, AStepIsWork) {
  CmDareSpeed speed;
  speed.flops_per_image = 54e6;
  speed.parameters = 30000;  // mean width sqrt(30000 / (3 * 100)) = 10
  speed.tensors = 100;
  speed.channels = 48;  // padded to 64, 96, 192: (4/3 + 1 + 1) / 3 = 10/9
  const StepWork work = work_of(speed);
  EXPECT_DOUBLE_EQ(work.launches, 100);
  EXPECT_NEAR(work.flops.value, 128 * 60e6, 1);
  // 128 * 54e6 / (54 * 10) outputs of 4 bytes.
  EXPECT_EQ(work.bytes.value, 128 * 400'000);
}

TEST_F(CmDare, ReadsCheckpointsOfBothCampaigns) {
  write("checkpoint/whole_data.csv",
        "Model,Duration,Meta File Size,Weight File Size\nA,3.5,1.5,20\nA,3.7,1.5,20\nB,4,2,30\n");
  write("checkpoint/unaggregated_test.csv", "Model,Duration\nB,4\n");
  const auto checkpoints = read_cm_dare_checkpoints(folder_);
  ASSERT_TRUE(checkpoints.has_value()) << checkpoints.error().message;
  ASSERT_EQ(checkpoints->size(), 2u);
  EXPECT_EQ((*checkpoints)[0].size, (CheckpointSize{Bytes(20'000'000), Bytes(1'500'000)}));
  EXPECT_THAT((*checkpoints)[0].seconds, ElementsAre(3.5, 3.7));
  EXPECT_EQ((*checkpoints)[0].campaign, 0);
  EXPECT_EQ((*checkpoints)[1].campaign, 1);
}

TEST_F(CmDare, ATraceIsTheMedianAfterTheFirstReading) {
  write("t.csv", "Wall time,Step,Value\n1,100,1\n2,200,9\n3,300,11\n4,400,10\n,,\n");
  EXPECT_DOUBLE_EQ(*read_trace_speed(folder_ + "/t.csv"), 10);
  write("short.csv", "Wall time,Step,Value\n1,100,1\n");
  EXPECT_EQ(read_trace_speed(folder_ + "/short.csv").error().message,
            folder_ + "/short.csv: no reading after the first, wanted speeds above 0");
}

TEST_F(CmDare, NamesTheLineOfATimeOfZero) {
  const std::string path = "speed/0latency_norm_computation.csv";
  write(path, std::string(kColumns) + "4,1e9,,3600,0.5,K80,Res15,50\n4,1e9,,3600,0,K80,Res15,50\n");
  const auto speeds = read_cm_dare_speeds(folder_);
  ASSERT_FALSE(speeds.has_value());
  EXPECT_THAT(
      speeds.error().message,
      ::testing::StartsWith(folder_ + "/" + path + ":3: column 'Step Time (s)': found '0'"));
}

TEST_F(CmDare, NamesAModelWithoutTensors) {
  write("speed/0latency_norm_computation.csv",
        std::string(kColumns) + "4,1e9,,3600,0.5,K80,Res15,\n");
  EXPECT_EQ(
      read_cm_dare_speeds(folder_).error().message,
      folder_ +
          "/speed/0latency_norm_computation: model 'Res15' has no number of tensors in any row");
}

}  // namespace
}  // namespace motley::peers

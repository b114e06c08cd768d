#include "peers/import/transient.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace motley::peers {
namespace {

using ::testing::ElementsAre;

constexpr Seconds kUntilTheEnd{std::numeric_limits<double>::infinity()};

/// Writes a cluster of spot machines; the folder is removed after the test.
class Transient : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "transient_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& runs, const std::string& machines) {
    const std::string path = folder_ + "/training/k80_spot/2-spot/";
    std::filesystem::create_directories(path);
    std::ofstream(path + "train_data_processed.csv") << "Zone,Run,Duration,Accuracy\n" << runs;
    std::ofstream(path + "vm_data.csv") << "VM_name,Uptime,Revoked\n" << machines;
  }
  std::string folder_;
};

TEST_F(Transient, JoinsRunsAndTheirMachines) {
  write("us-east1-c,1,7000,0.9\nus-east1-c,2,9000,0.9\nus-west1-b,1,1000,0.1\n",
        "spot2-us-east1-c-run1-master,7300,Job completed\nspot2-us-east1-c-run1-worker-0,7299,Job "
        "completed\n"
        "us-east1-c-run2-master,9310,Job completed\nus-east1-c-run2-worker-0,4300,Revoked\n"
        "us-west1-b-run1-master,1300,Manually stopped due to revoked master\n");
  const auto runs = read_transient_runs(folder_, "2-spot");
  ASSERT_TRUE(runs.has_value()) << runs.error().message;
  ASSERT_EQ(runs->size(), 3u);
  EXPECT_TRUE((*runs)[0].is_undisturbed());
  EXPECT_FALSE((*runs)[1].is_undisturbed());
  EXPECT_TRUE((*runs)[2].is_stopped);
  EXPECT_DOUBLE_EQ(start_delay_s(*runs), 300);  // of the first run alone: 7300 - 7000
  // The worker left at 4300 - 300.
  EXPECT_THAT(presences_of((*runs)[1], 300),
              ElementsAre(elastic::AvailabilityTrace{Seconds(0), kUntilTheEnd},
                          elastic::AvailabilityTrace{Seconds(0), Seconds(4000)}));
  EXPECT_THAT(*read_transient_durations(folder_, "k80_spot/2-spot"), ElementsAre(7000, 9000, 1000));
}

TEST_F(Transient, NamesTheMachineThatBelongsToNoRun) {
  write("us-east1-c,1,7000,0.9\n", "us-east1-c-run3-master,7300,Job completed\n");
  const auto runs = read_transient_runs(folder_, "2-spot");
  ASSERT_FALSE(runs.has_value());
  EXPECT_EQ(runs.error().message, folder_ +
                                      "/training/k80_spot/2-spot/vm_data.csv:2: column 'VM_name': "
                                      "found 'us-east1-c-run3-master', "
                                      "wanted a machine of a run in train_data_processed.csv");
}

TEST_F(Transient, NamesAMachineWithoutARun) {
  write("us-east1-c,1,7000,0.9\n", "master,7300,Job completed\n");
  EXPECT_THAT(read_transient_runs(folder_, "2-spot").error().message,
              ::testing::EndsWith("found 'master', wanted [spotN-]ZONE-runNUMBER-ROLE"));
}

TEST_F(Transient, ReadsTheDatedLives) {
  std::filesystem::create_directories(folder_ + "/lifetime");
  std::ofstream(folder_ + "/lifetime/lifetime.csv")
      << "K80,,\nVM name,Start,Terminate\na-us-west1-b-1less,2/28/19 23:40,3/1/19 00:10\n"
         "V100,,\nVM name,Start,Terminate\na-v100-asia-east1-c-0,3/1/19 00:40,3/2/19 00:39\n"
         "Previous experiments,,\n8-May,created,terminated\ntest0,09:49:51,1046894:06:53\n";
  const auto lives = read_transient_lifetimes(folder_);
  ASSERT_TRUE(lives.has_value()) << lives.error().message;
  ASSERT_EQ(lives->size(), 2u);
  // Lost after half an hour. The other one begins an hour after its start and lives for 23 h 59.
  EXPECT_EQ((*lives)[0].machine,
            (elastic::RentedMachine{"k80", "us-west1-b", Seconds(0), Seconds(1800), true}));
  EXPECT_EQ((*lives)[1].machine, (elastic::RentedMachine{"v100", "asia-east1-c", Seconds(3600),
                                                         Seconds(3600 + 86340), false}));
  std::ofstream(folder_ + "/lifetime/lifetime.csv")
      << "K80,,\na-us-west1-b-1,2/28/19 23:40,2/28/19 00:10\n";
  EXPECT_EQ(read_transient_lifetimes(folder_).error().message,
            folder_ +
                "/lifetime/lifetime.csv:2: column 3: found '2/28/19 00:10', wanted an end "
                "behind the start");
}

TEST_F(Transient, ReadsARunsEvaluations) {
  const std::string path = folder_ + "/training/k80_spot/4-spot/";
  std::filesystem::create_directories(path);
  std::ofstream(path + "4-spot-train_data.csv")
      << "Wall Time,Step,Accuracy,Zone,Run\n1062,4000,0.5,us-west1-b,2\n1000,0,0.1,us-west1-b,2\n"
         "7,0,0.1,us-west1-b,1\n";
  const auto progress = read_progress(folder_, "4-spot", {.zone = "us-west1-b", .number = 2});
  ASSERT_TRUE(progress.has_value()) << progress.error().message;
  ASSERT_EQ(progress->size(), 2u);
  EXPECT_EQ((*progress)[1].at_s, 62);
  EXPECT_EQ((*progress)[1].steps, 4000);
}

}  // namespace
}  // namespace motley::peers

#include "motley/cost/measured/profile_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>

#include "motley/base/descriptor.h"
#include "motley/cost/measured/database.h"
#include "motley/testing/other_process.h"

namespace motley::cost {
namespace {

using testing::OtherProcess;

const DeviceKey kThisCpu{"cpu", 1, "2.15"};
const DeviceKey kGpu{"NVIDIA A10", 1, "2.15"};

OpEntry op(const DeviceKey& device, const std::string& key, double seconds) {
  return {device, key, Seconds(seconds), 0.05, 20};
}

class ProfileStoreTest : public ::testing::Test {
 protected:
  ProfileStoreTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) / ("store_" + std::string(info->name()));
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / "profiles.db").string();
  }
  ~ProfileStoreTest() override { std::filesystem::remove_all(folder_); }

  ProfileStore open() const {
    auto store = ProfileStore::open(path_);
    EXPECT_TRUE(store) << store.error().message;
    return std::move(*store);
  }

  std::string message() const {
    const auto store = ProfileStore::open(path_);
    if (store) return "no error";
    EXPECT_EQ(store.error().kind, ErrorKind::kUsage);
    EXPECT_TRUE(store.error().message.starts_with(path_ + ": "));
    return store.error().message.substr(path_.size() + 2);
  }

  void run(const char* sql) const {
    const auto database = Database::open(path_);
    ASSERT_TRUE(database);
    ASSERT_TRUE((*database)->run(sql));
  }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(ProfileStoreTest, KeepsOperatorsByDeviceAndKey) {
  {
    ProfileStore store = open();
    ASSERT_TRUE(store.put({op(kThisCpu, "b", 2.0), op(kThisCpu, "a", 1.0), op(kGpu, "a", 0.1)}));
  }
  const ProfileStore store = open();
  const auto found = store.find_op(kThisCpu, "a");
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->device, kThisCpu);
  EXPECT_EQ((*found)->key, "a");
  EXPECT_EQ((*found)->median, Seconds(1.0));
  EXPECT_EQ((*found)->spread, 0.05);
  EXPECT_EQ((*found)->samples, 20);
  EXPECT_EQ(store.find_op(kGpu, "a").value()->median, Seconds(0.1));
  EXPECT_FALSE(store.find_op(kGpu, "b").value());
  EXPECT_FALSE(store.find_op({"cpu", 2, "2.15"}, "a").value());
  EXPECT_FALSE(store.find_op({"cpu", 1, "2.11"}, "a").value());
  const auto all = store.ops(kThisCpu);
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 2U);
  EXPECT_EQ((*all)[0].key, "a");
  EXPECT_EQ((*all)[1].key, "b");
}

TEST_F(ProfileStoreTest, KeepsInterferenceByDeviceAndRoute) {
  ProfileStore store = open();
  EXPECT_TRUE(store.interference().value().empty());
  const auto entry = [](const std::string& route, int ranks, double factor) {
    return InterferenceEntry{kThisCpu, "gloo", route, ranks, factor, 3};
  };
  ASSERT_TRUE(store.put({entry("local", 3, 0), entry("local", 2, 0.5), entry("1Gbps+0s", 2, 1)}));
  ASSERT_TRUE(store.put({entry("local", 2, 0.1)}));
  ASSERT_TRUE(store.put({entry("local", 2, 9.0)}));
  // Rounds by their median: 0.1, 0.5, 9.
  InterferenceEntry merged = entry("local", 2, 0.5);
  merged.samples = 9;
  EXPECT_EQ(store.interference().value(),
            (std::vector{entry("1Gbps+0s", 2, 1), merged, entry("local", 3, 0)}));
  // The newest kRoundsKept count.
  for (int round = 0; round < ProfileStore::kRoundsKept; ++round)
    ASSERT_TRUE(store.put({entry("local", 2, 0.25)}));
  EXPECT_EQ(store.interference().value()[1].factor, 0.25);
  EXPECT_EQ(store.interference().value()[1].samples, 3 * ProfileStore::kRoundsKept);
}

TEST_F(ProfileStoreTest, AddsInterferenceToAnOlderFile) {
  { open(); }
  run("DROP TABLE interference");
  EXPECT_TRUE(open().put({InterferenceEntry{kThisCpu, "gloo", "local", 2, 0.5, 3}}));
  run("PRAGMA ignore_check_constraints = 1; UPDATE interference SET factor = -1");
  EXPECT_EQ(open().interference().error().message,
            path_ +
                ": the profile store is corrupt (interference of -1); remove it and run "
                "`motley profile` again");
}

TEST_F(ProfileStoreTest, MergesTheRoundsOfAnEntry) {
  ProfileStore store = open();
  const auto put = [&](double seconds, std::int64_t scratch) {
    OpEntry entry = op(kThisCpu, "a", seconds);
    entry.scratch = Bytes(scratch);
    entry.work = {5, 6, 1};
    ASSERT_TRUE(store.put({entry, op(kThisCpu, "b", 7.0)}));
  };
  // 3.0 twice, far from the rest: drift (readings_test.cc has the arithmetic).
  put(1.0, 10);
  put(1.0, 30);
  put(3.0, 20);
  const auto merged = store.find_op(kThisCpu, "a").value();
  EXPECT_DOUBLE_EQ(merged->median.value, 1.0);
  EXPECT_EQ(merged->samples, 60);
  EXPECT_EQ(merged->scratch, Bytes(30));
  EXPECT_EQ(merged->work, (OperatorWork{5, 6, 1}));
  EXPECT_GT(merged->deviation, 0);
  EXPECT_FALSE(merged->has_drifted);
  put(3.0, 20);
  const auto all = store.ops(kThisCpu);
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 2U);
  EXPECT_DOUBLE_EQ((*all)[0].median.value, 3.0);
  EXPECT_TRUE((*all)[0].has_drifted);
  EXPECT_EQ((*all)[1].key, "b");
  EXPECT_FALSE((*all)[1].has_drifted);
}

TEST_F(ProfileStoreTest, KeepsTheNewestRounds) {
  ProfileStore store = open();
  for (int round = 0; round < ProfileStore::kRoundsKept + 3; ++round)
    ASSERT_TRUE(store.put({op(kThisCpu, "a", 1.0)}));
  EXPECT_EQ(store.find_op(kThisCpu, "a").value()->samples, 20 * ProfileStore::kRoundsKept);
}

TEST_F(ProfileStoreTest, KeepsPredictions) {
  const PredictionEntry first{"m", "c", "step", 1.0, 1.1}, second{"m", "c", "memory", 64, 60};
  {
    ProfileStore store = open();
    ASSERT_TRUE(store.put(first));
    ASSERT_TRUE(store.put(second));
  }
  EXPECT_EQ(*open().predictions(), (std::vector<PredictionEntry>{first, second}));
}

TEST_F(ProfileStoreTest, KeepsCollectives) {
  ProfileStore store = open();
  const auto entry = [](int ranks, std::int64_t bytes, double seconds) {
    return CollectiveEntry{"motley::all_reduce", "gloo",           "local", ranks,
                           Bytes(bytes),         Seconds(seconds), 0.1,     9};
  };
  ASSERT_TRUE(store.put({entry(3, 8, 2.0), entry(2, 8, 1.0)}));
  ASSERT_TRUE(store.put({entry(2, 8, 1.0)}));
  const auto all = store.collectives();
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 2U);
  EXPECT_EQ((*all)[0].ranks, 2);
  EXPECT_DOUBLE_EQ((*all)[0].median.value, 1.0);
  EXPECT_EQ((*all)[0].bytes, Bytes(8));
  EXPECT_EQ((*all)[0].op, "motley::all_reduce");
  EXPECT_EQ((*all)[0].backend, "gloo");
  EXPECT_EQ((*all)[0].route, "local");
  EXPECT_EQ((*all)[0].spread, 0.1);
  EXPECT_EQ((*all)[0].samples, 18);
  EXPECT_EQ((*all)[1].ranks, 3);
}

TEST_F(ProfileStoreTest, RemembersBatchesOfAModel) {
  ProfileStore store = open();
  EXPECT_TRUE(store.batches("m", kThisCpu)->empty());
  ASSERT_TRUE(store.put_batches("m", kThisCpu, {8, 2}));
  ASSERT_TRUE(store.put_batches("m", kThisCpu, {2, 4}));
  ASSERT_TRUE(store.put_batches("n", kThisCpu, {1}));
  EXPECT_EQ(*store.batches("m", kThisCpu), (std::vector<std::int64_t>{2, 4, 8}));
  EXPECT_TRUE(store.batches("m", kGpu)->empty());
  EXPECT_EQ(*store.profiled_devices("m"), std::vector<DeviceKey>{kThisCpu});
  EXPECT_TRUE(store.profiled_devices("o")->empty());
}

TEST_F(ProfileStoreTest, AFailedPutLeavesTheOldEntries) {
  ProfileStore store = open();
  ASSERT_TRUE(store.put({op(kThisCpu, "a", 1.0)}));
  const auto result = store.put({op(kThisCpu, "a", 2.0), op(kThisCpu, "b", -1.0)});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::kRuntime);
  EXPECT_EQ(result.error().message, path_ + ": CHECK constraint failed: median_s >= 0");
  EXPECT_EQ(store.find_op(kThisCpu, "a").value()->median, Seconds(1.0));
}

TEST_F(ProfileStoreTest, TwoObjectsShareAFile) {
  ProfileStore first = open(), second = open();
  ASSERT_TRUE(first.put({op(kThisCpu, "a", 1.0)}));
  EXPECT_EQ(second.find_op(kThisCpu, "a").value()->median, Seconds(1.0));
  // Both have read; both may write.
  ASSERT_TRUE(second.put({op(kThisCpu, "a", 2.0)}));
  ASSERT_TRUE(first.put({op(kThisCpu, "b", 2.0)}));
  EXPECT_EQ(first.find_op(kThisCpu, "a").value()->samples, 40);
}

TEST_F(ProfileStoreTest, RefusesWhatIsNoStore) {
  std::ofstream(path_) << "a text that is long enough to be more than the header of a database "
                          "file, which has a hundred bytes in all";
  EXPECT_EQ(message(), "is not a profile store");
}

TEST_F(ProfileStoreTest, RefusesAnotherDatabase) {
  run("CREATE TABLE t(x)");
  EXPECT_EQ(message(), "is a database, but not a profile store");
}

TEST_F(ProfileStoreTest, RefusesAnotherVersion) {
  open();
  run("PRAGMA user_version = 7");
  EXPECT_EQ(message(),
            "profile store of version 7, wanted 2; remove it and run `motley profile` again");
}

TEST_F(ProfileStoreTest, RefusesAPathThatCannotBe) {
  path_ = (folder_ / "no" / "profiles.db").string();
  EXPECT_EQ(message(), "cannot be opened (unable to open database file)");
}

TEST_F(ProfileStoreTest, ReportsACorruptFile) {
  {
    ProfileStore store = open();
    std::vector<OpEntry> entries;
    for (int i = 0; i < 2000; ++i) entries.push_back(op(kThisCpu, "key " + std::to_string(i), 1.0));
    ASSERT_TRUE(store.put(entries));
  }
  // Everything but the first page, which holds the header and the schema, becomes garbage.
  const auto size = static_cast<std::size_t>(std::filesystem::file_size(path_));
  ASSERT_GT(size, 8192U);
  std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(4096);
  file << std::string(size - 4096, '\xa5');
  file.close();
  const auto entries = open().ops(kThisCpu);
  ASSERT_FALSE(entries);
  EXPECT_EQ(entries.error().kind, ErrorKind::kUsage);
  EXPECT_EQ(entries.error().message,
            path_ +
                ": the profile store is corrupt (database disk image is malformed); remove it "
                "and run `motley profile` again");
}

TEST_F(ProfileStoreTest, ReportsATruncatedFile) {
  {
    ProfileStore store = open();
    std::vector<OpEntry> entries;
    for (int i = 0; i < 2000; ++i) entries.push_back(op(kThisCpu, "key " + std::to_string(i), 1.0));
    ASSERT_TRUE(store.put(entries));
  }
  std::filesystem::resize_file(path_, 5000);
  EXPECT_EQ(message(),
            "the profile store is corrupt (database disk image is malformed); remove it and run "
            "`motley profile` again");
}

TEST_F(ProfileStoreTest, ReportsATimeThatCannotBe) {
  open();
  run("PRAGMA ignore_check_constraints = 1; INSERT INTO op VALUES('cpu', 1, '2.15', 'a', 1, -2, "
      "0, 1, 0, 0, 0, 1)");
  const auto entries = open().ops(kThisCpu);
  ASSERT_FALSE(entries);
  EXPECT_EQ(entries.error().message,
            path_ +
                ": the profile store is corrupt (a time of -2 s); remove it and run `motley "
                "profile` again");
}

constexpr int kProcesses = 4, kRounds = 8;

/// One of several processes: puts two entries at a time and expects others' puts to be atomic.
std::string share_store(const std::string& path, int process) {
  auto store = ProfileStore::open(path);
  if (!store) return store.error().message;
  for (int round = 0; round < kRounds; ++round) {
    const std::string key = std::to_string(process) + " " + std::to_string(round);
    const auto put = store->put({op(kThisCpu, "one " + key, 1), op(kThisCpu, "other " + key, 1)});
    if (!put) return put.error().message;
    const auto kept = store->put(PredictionEntry{"m", "c", "step", 1, 1.0 + process});
    if (!kept) return kept.error().message;
    const auto batches = store->put_batches("m", kThisCpu, {kRounds * process + round});
    if (!batches) return batches.error().message;
    const auto seen = store->ops(kThisCpu);
    if (!seen) return seen.error().message;
    if (seen->size() % 2 != 0) return "half of a put is seen";
  }
  return "";
}

TEST_F(ProfileStoreTest, ProcessesShareAFileAndLoseNothing) {
  int ends[2];  // gate: all processes open the missing file at once when it closes
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Descriptor waiting(ends[0]);
  Descriptor gate(ends[1]);
  std::vector<std::unique_ptr<OtherProcess>> processes;
  for (int process = 0; process < kProcesses; ++process)
    processes.push_back(std::make_unique<OtherProcess>([&](const auto& ready) -> std::string {
      gate.reset();
      ready();
      char byte = 0;
      if (::read(waiting.number(), &byte, 1) != 0) return "no gate";
      return share_store(path_, process);
    }));
  for (const auto& process : processes) process->wait_for_ready();
  gate.reset();
  for (const auto& process : processes) EXPECT_EQ(process->wait_for_exit(), 0);
  const ProfileStore store = open();
  EXPECT_EQ(store.ops(kThisCpu)->size(), 2U * kProcesses * kRounds);
  EXPECT_EQ(store.predictions()->size(), 1U * kProcesses * kRounds);
  EXPECT_EQ(store.batches("m", kThisCpu)->size(), 1U * kProcesses * kRounds);
}

TEST_F(ProfileStoreTest, RoundsOfProcessesAddUp) {
  constexpr int kEach = ProfileStore::kRoundsKept / 2;
  const auto write_rounds = [&](const auto&) -> std::string {
    ProfileStore store = open();
    for (int round = 0; round < kEach; ++round)
      if (const auto put = store.put({op(kThisCpu, "a", 1.0)}); !put) return put.error().message;
    return "";
  };
  OtherProcess first(write_rounds), second(write_rounds);
  EXPECT_EQ(first.wait_for_exit(), 0);
  EXPECT_EQ(second.wait_for_exit(), 0);
  EXPECT_EQ(open().find_op(kThisCpu, "a").value()->samples, 2 * kEach * 20);  // 20 a round
}

TEST_F(ProfileStoreTest, AKilledProcessLeavesWholePuts) {
  for (int times = 0; times < 5; ++times) {
    OtherProcess writer([&](const auto& ready) -> std::string {
      ProfileStore store = open();
      for (int i = 0;; ++i) {
        const std::string key = std::to_string(times) + " " + std::to_string(i);
        const auto put =
            store.put({op(kThisCpu, "one " + key, 1.0), op(kThisCpu, "other " + key, 1.0)});
        if (!put) return put.error().message;
        if (i == times) ready();
      }
    });
    writer.wait_for_ready();
    writer.kill();
    const auto seen = open().ops(kThisCpu);
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_GE(seen->size(), 2U * static_cast<std::size_t>(times + 1));
    EXPECT_EQ(seen->size() % 2, 0U);
  }
}

TEST_F(ProfileStoreTest, WhoHoldsItForTooLongIsNamed) {
  ASSERT_TRUE(open().put({op(kThisCpu, "a", 1.0)}));
  OtherProcess holder([&](const auto& ready) -> std::string {
    const auto database = Database::open(path_);
    const auto transaction = Transaction::begin(**database);
    ready();
    ::pause();
    return "";
  });
  holder.wait_for_ready();
  ProfileStore store = ProfileStore::open(path_, Seconds(0.05)).value();
  EXPECT_EQ(store.find_op(kThisCpu, "a").value()->median, Seconds(1.0));  // reading does not wait
  const auto put = store.put({op(kThisCpu, "a", 2.0)});
  ASSERT_FALSE(put);
  const std::string pid = std::to_string(holder.pid());
  EXPECT_EQ(put.error(), (Error{ErrorKind::kRuntime, "cost.busy",
                                path_ + ": process " + pid +
                                    " has held the profile store for 50 ms; wait for "
                                    "it or stop it (kill " +
                                    pid + ")"}));
  holder.kill();
  ASSERT_TRUE(store.put({op(kThisCpu, "a", 2.0)}));
  // It names neither this process nor one of another host.
  const auto own = Database::open(path_);
  const auto transaction = Transaction::begin(**own);
  EXPECT_EQ(store.put({op(kThisCpu, "a", 2.0)}).error().message,
            path_ +
                ": another process, of this host or another, has held the profile store for 50 "
                "ms; wait for it or stop it");
}

int refuse_lock(int /*file*/, int /*command*/, ...) {
  errno = ENOSYS;
  return -1;
}

TEST_F(ProfileStoreTest, AFileSystemWithoutLocksIsSaid) {
  ASSERT_TRUE(open().put({op(kThisCpu, "a", 1.0)}));
  sqlite3_vfs* const files = sqlite3_vfs_find(nullptr);
  ASSERT_EQ(
      files->xSetSystemCall(files, "fcntl", reinterpret_cast<sqlite3_syscall_ptr>(refuse_lock)),
      SQLITE_OK);
  EXPECT_EQ(message(),
            "its file system does not lock files, so that processes cannot share the profile "
            "store; name another place (MOTLEY_PROFILES)");
  ASSERT_EQ(files->xSetSystemCall(files, "fcntl", nullptr), SQLITE_OK);
}

}  // namespace
}  // namespace motley::cost

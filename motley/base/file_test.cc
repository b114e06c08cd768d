#include "motley/base/file.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <utility>

namespace motley {
namespace {

namespace fs = std::filesystem;

/// Limits the size of this process's files to `bytes` during its lifetime: simulates a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  void (*old_handler_)(int);
  rlimit old_{};
};

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  const std::string folder_ = ::testing::TempDir() + "motley_file_test_" + std::to_string(getpid());
  const std::string path_ = folder_ + "/f";
};

TEST_F(FileTest, ReadsWhatWasWritten) {
  const std::string bytes = std::string(100000, 'x') + std::string("\0\n", 2);
  ASSERT_TRUE(write_file_atomic(path_, bytes));
  EXPECT_EQ(read_file(path_), bytes);
  EXPECT_FALSE(fs::exists(path_ + ".tmp"));
  ASSERT_TRUE(write_file_atomic(path_, ""));
  EXPECT_EQ(read_file(path_), "");
}

TEST_F(FileTest, ReadsFilesWithoutASize) {
  EXPECT_THAT(*read_file("/proc/self/status"), ::testing::HasSubstr("Pid:"));
}

TEST_F(FileTest, NamesWhatCannotBeRead) {
  EXPECT_EQ(read_file(path_).error(),
            (Error{ErrorKind::kUsage, "file.missing", path_ + ": no such file"}));
  EXPECT_EQ(read_file(folder_).error(),
            (Error{ErrorKind::kUsage, "file.read", folder_ + ": is a directory"}));
  EXPECT_EQ(MappedFile::open(path_).error().message, path_ + ": no such file");
  EXPECT_EQ(MappedFile::open(folder_).error().message, folder_ + ": is a directory");
}

TEST_F(FileTest, NamesAFolderThatIsNotThere) {
  EXPECT_EQ(
      write_file_atomic(path_ + "/g", "x").error(),
      (Error{ErrorKind::kUsage, "file.write", path_ + "/g: cannot be written: no such folder"}));
}

TEST_F(FileTest, AFullDiskLeavesTheOldFile) {
  ASSERT_TRUE(write_file_atomic(path_, "old"));
  {
    const FileSizeLimit limit(1000);
    EXPECT_EQ(
        write_file_atomic(path_, std::string(5000, 'n')).error(),
        (Error{ErrorKind::kRuntime, "file.write", path_ + ": cannot be written: file too large"}));
  }
  EXPECT_EQ(read_file(path_), "old");
  EXPECT_FALSE(fs::exists(path_ + ".tmp"));
}

TEST_F(FileTest, AnUncommittedFileDisappears) {
  {
    auto file = AtomicFile::create(path_);
    ASSERT_TRUE(file);
    AtomicFile moved = std::move(*file);
    ASSERT_TRUE(moved.write(std::as_bytes(std::span("abc", 3))));
    EXPECT_TRUE(fs::exists(path_ + ".tmp"));
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(FileTest, MapsFiles) {
  ASSERT_TRUE(write_file_atomic(path_, "abc"));
  auto mapped = MappedFile::open(path_);
  ASSERT_TRUE(mapped);
  MappedFile moved = std::move(*mapped);
  ASSERT_EQ(moved.bytes().size(), 3u);
  EXPECT_EQ(moved.bytes()[2], std::byte{'c'});
  ASSERT_TRUE(write_file_atomic(path_, ""));
  EXPECT_TRUE(MappedFile::open(path_)->bytes().empty());
}

}  // namespace
}  // namespace motley

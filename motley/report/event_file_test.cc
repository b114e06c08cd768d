#include "motley/report/event_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "motley/base/file.h"

namespace motley::report {
namespace {

std::string only_file(const std::string& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    return read_file(entry.path().string()).value();
  return "";
}

TEST(EventFile, FramesRecordsWithMaskedChecksums) {
  const std::string directory = ::testing::TempDir() + "/motley-event-file";
  std::filesystem::remove_all(directory);
  {
    auto file = EventFile::create(directory, 1000.0);
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_TRUE(file->write(7, 1001.0, {{"loss", 0.5}}));
  }
  const std::string bytes = only_file(directory);
  // First record: wall_time (1+8), step 0 (1+1), file_version (1+1+13) = 26 bytes.
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length, 26U);
  // CRC-32C of 1a and seven zero bytes, bit by bit, rotated right by 15, plus 0xa282ead8.
  std::uint32_t crc = ~0U;
  for (int i = 0; i < 8; ++i) {
    crc ^= static_cast<std::uint8_t>(bytes[static_cast<std::size_t>(i)]);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78U : 0U);
  }
  crc = ~crc;
  const std::uint32_t masked = ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
  std::uint32_t stored = 0;
  std::memcpy(&stored, bytes.data() + 8, 4);
  EXPECT_EQ(stored, masked);
  EXPECT_NE(bytes.find("brain.Event:2"), std::string::npos);
  // Second record: wall_time 9, step 2, summary 2 + value 2 + tag 6 + float 5 = 26 bytes.
  const std::size_t second = 8 + 4 + 26 + 4;
  std::memcpy(&length, bytes.data() + second, 8);
  EXPECT_EQ(length, 26U);
  EXPECT_EQ(bytes.size(), second + 8 + 4 + 26 + 4);
}

TEST(EventFile, UnwritableDirectoryIsAnError) {
  const auto file = EventFile::create("/proc/no-such-place", 1.0);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, "report.event-file");
}

}  // namespace
}  // namespace motley::report

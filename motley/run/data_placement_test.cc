#include "motley/run/data_placement.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "motley/base/safetensors.h"
#include "motley/testing/forked_agent.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;

/// 600 samples of 1 KiB in a local file; hosts a, b and c, whose ranks take 30, 20 and 10 of 60.
class DataPlacementTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "motley-data-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    for (std::size_t i = 0; i < 600 * kNumbers; ++i) values_.push_back(static_cast<float>(i));
    const NamedTensor x{"x", {DType::kF32, {600, kNumbers}, std::as_bytes(std::span(values_))}};
    ASSERT_TRUE(write_safetensors(path(), {&x, 1}, {}).has_value());
    file_.emplace(DataFile::open({.path = path()}, inputs_).value());
    for (const char* host : {"a", "b", "c"})
      agents_.push_back(std::make_unique<ForkedAgent>(host, cache(host)));
  }
  void TearDown() override {
    agents_.clear();
    fs::remove_all(dir_);
  }
  std::string path() const { return dir_ + "/all.safetensors"; }
  std::string cache(const std::string& host) const { return dir_ + "/" + host; }

  DataReads reads(int rank, std::int64_t first, std::int64_t batches) const {
    BatchKind kind{60, {{}, {}, {}}};
    for (std::int64_t place = 0; place < 60; ++place)
      kind.places[place < 30 ? 0 : place < 50 ? 1 : 2].push_back(place);
    return {.order = BatchOrder::endless(kind, first, first * 60),
            .batches = batches,
            .ranks = {rank},
            .samples = 600,
            .shuffle = 7};
  }
  data::DataSource place(int rank, const std::vector<DataReads>& choices) {
    HostLink& link = agents_[static_cast<std::size_t>(rank)]->link();
    auto source = file_->place(link, "run/in/data/all.safetensors", choices);
    agents_[static_cast<std::size_t>(rank)]->settle();
    return source.value();
  }
  std::int64_t kept_bytes() const {
    std::int64_t bytes = 0;
    for (const char* host : {"a", "b", "c"})
      for (const auto& each : fs::directory_iterator(cache(host) + "/files"))
        bytes += static_cast<std::int64_t>(each.file_size());
    return bytes;
  }

  static constexpr std::int64_t kNumbers = 256;
  std::string dir_;
  std::vector<float> values_;
  std::vector<data::InputSpec> inputs_ = {{"x", DType::kF32, {kNumbers}}};
  std::optional<DataFile> file_;
  std::vector<std::unique_ptr<ForkedAgent>> agents_;
};

// An epoch is ten batches. Each sample's number adds 8 bytes to its 1024.
TEST_F(DataPlacementTest, AnEpochOverThreeHostsSendsTheFileOnceInAll) {
  for (int rank = 0; rank < 3; ++rank) {
    const data::DataSource there = place(rank, {reads(rank, 0, 10)});
    const auto samples = data::open_dataset(there, inputs_).value();
    EXPECT_EQ(samples->samples(), 600);
    const auto wanted = find_samples(reads(rank, 0, 10), 1).value();
    float values[kNumbers];
    for (std::int64_t i = 0; i < 600; ++i) {
      ASSERT_EQ(samples->has(i), wanted.has(i));
      if (!wanted.has(i)) continue;
      samples->read(0, i, reinterpret_cast<std::byte*>(values));
      EXPECT_EQ(values[5], static_cast<float>(i * kNumbers + 5));
    }
  }
  const auto file = static_cast<double>(fs::file_size(path()));
  EXPECT_NEAR(static_cast<double>(kept_bytes()), file * (1 + 8. / 1024), 0.01 * file);
}

TEST_F(DataPlacementTest, WhatAHostHasIsNotSentAgain) {
  const std::string first = place(2, {reads(2, 0, 10)}).path;
  const std::int64_t sent = kept_bytes();
  // Resumed from batch 4: what the host has from the beginning is sufficient.
  EXPECT_EQ(place(2, {reads(2, 0, 10), reads(2, 4, 6)}).path, first);
  EXPECT_EQ(kept_bytes(), sent);
  // Five more batches, 50 samples, none of which it has.
  place(2, {reads(2, 0, 15), reads(2, 10, 5)});
  EXPECT_NEAR(static_cast<double>(kept_bytes() - sent), 50 * 1032, 1000);
}

TEST_F(DataPlacementTest, MostOfAFileGoesWholeAndServesAllReads) {
  const data::DataSource there = place(0, {reads(0, 0, 100)});
  EXPECT_TRUE(there.path.ends_with("all.safetensors"));
  EXPECT_EQ(kept_bytes(), static_cast<std::int64_t>(fs::file_size(path())));
  EXPECT_EQ(place(0, {reads(0, 0, 1)}).path, there.path);
}

}  // namespace
}  // namespace motley::run

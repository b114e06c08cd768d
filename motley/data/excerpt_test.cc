#include "motley/data/excerpt.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "motley/base/file.h"
#include "motley/base/safetensors.h"

namespace motley::data {
namespace {

/// 100 samples: x, three floats, and y, an integer.
class ExcerptTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 300; ++i) x_.push_back(static_cast<float>(i));
    for (int i = 0; i < 100; ++i) y_.push_back(1000 + i);
    const std::vector<NamedTensor> tensors = {
        {"x", {DType::kF32, {100, 3}, std::as_bytes(std::span(x_))}},
        {"y", {DType::kI64, {100}, std::as_bytes(std::span(y_))}}};
    ASSERT_TRUE(write_safetensors(path("all.safetensors"), tensors, {}).has_value());
  }
  static std::string path(const std::string& name) {
    return ::testing::TempDir() + "excerpt-" + name;
  }

  std::int64_t write(const Dataset& whole, const std::vector<InputSpec>& inputs,
                     const SampleSet& kept, const std::string& to) {
    const Excerpt excerpt(whole, inputs, kept);
    std::ofstream stream(to, std::ios::binary);
    EXPECT_TRUE(excerpt
                    .write([&](std::string_view piece) -> Result<void> {
                      stream << piece;
                      return {};
                    })
                    .has_value());
    return excerpt.bytes();
  }

  std::vector<float> x_;
  std::vector<std::int64_t> y_;
  std::vector<InputSpec> inputs_ = {{"x", DType::kF32, {3}}, {"y", DType::kI64, {}}};
};

TEST_F(ExcerptTest, HasItsSamplesUnderTheirNumbersAndNoOthers) {
  const auto whole = open_dataset({.path = path("all.safetensors")}, inputs_).value();
  SampleSet kept(100);
  for (const std::int64_t sample : {99, 0, 64, 63, 64}) kept.add(sample);
  EXPECT_EQ(kept.count(), 4);
  const std::string file = path("some.excerpt");
  const std::int64_t bytes = write(*whole, inputs_, kept, file);
  EXPECT_EQ(bytes, static_cast<std::int64_t>(std::filesystem::file_size(file)));
  const auto some = open_dataset({.path = file}, inputs_).value();
  EXPECT_EQ(some->samples(), 100);
  for (std::int64_t sample = 0; sample < 100; ++sample) {
    ASSERT_EQ(some->has(sample), sample == 0 || sample == 63 || sample == 64 || sample == 99);
    if (!some->has(sample)) continue;
    float x[3];
    std::int64_t y = 0;
    some->read(0, sample, reinterpret_cast<std::byte*>(x));
    some->read(1, sample, reinterpret_cast<std::byte*>(&y));
    EXPECT_EQ(x[2], 3 * sample + 2);
    EXPECT_EQ(y, 1000 + sample);
  }
}

TEST_F(ExcerptTest, TokensAreKeptAsTheFileHasThem) {
  std::ofstream stream(path("tokens.bin"), std::ios::binary);
  for (std::uint16_t token = 0; token < 41; ++token)
    stream.write(reinterpret_cast<const char*>(&token), 2);
  stream.close();
  const std::vector<InputSpec> inputs = {{"x", DType::kI64, {4}}, {"y", DType::kI64, {4}}};
  const auto whole = open_dataset({.path = path("tokens.bin"), .seq = 4}, inputs).value();
  SampleSet kept(10);
  kept.add(9);
  kept.add(2);
  EXPECT_EQ(whole->stored_bytes(0), 10);
  write(*whole, inputs, kept, path("tokens.excerpt"));
  const auto some = open_dataset({.path = path("tokens.excerpt")}, inputs).value();
  std::int64_t tokens[4];
  some->read(1, 9, reinterpret_cast<std::byte*>(tokens));
  EXPECT_EQ(tokens[0], 37);
  EXPECT_EQ(tokens[3], 40);
  some->read(0, 2, reinterpret_cast<std::byte*>(tokens));
  EXPECT_EQ(tokens[0], 8);
}

TEST_F(ExcerptTest, RefusesWhatIsDamagedOrOfOtherInputs) {
  const auto whole = open_dataset({.path = path("all.safetensors")}, inputs_).value();
  SampleSet kept(100);
  for (std::int64_t sample = 0; sample < 50; ++sample) kept.add(sample);
  write(*whole, inputs_, kept, path("half.excerpt"));
  std::string text = read_file(path("half.excerpt")).value();
  ASSERT_TRUE(write_file_atomic(path("cut.excerpt"), text.substr(0, text.size() - 64)).has_value());
  EXPECT_EQ(open_dataset({.path = path("cut.excerpt")}, inputs_).error().message,
            path("cut.excerpt") + ": its sizes do not fit: it is damaged");
  EXPECT_EQ(open_dataset({.path = path("half.excerpt")}, {inputs_[0]}).error().code,
            "data.excerpt");
  ASSERT_TRUE(write_file_atomic(path("none.excerpt"), "x").has_value());
  EXPECT_EQ(open_dataset({.path = path("none.excerpt")}, inputs_).error().message,
            path("none.excerpt") + ": is no motley.excerpt/1");
}

}  // namespace
}  // namespace motley::data

#include "motley/data/dataset.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "motley/base/safetensors.h"
#include "motley/testing/places.h"

namespace motley::data {
namespace {

class DatasetTest : public ::testing::Test {
 protected:
  DatasetTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        std::filesystem::path(::testing::TempDir()) / ("dataset_" + std::string(info->name()));
    std::filesystem::create_directories(folder_);
  }
  ~DatasetTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  std::string write_tensors(const std::vector<NamedTensor>& tensors) const {
    const std::string path = (folder_ / "d.safetensors").string();
    EXPECT_TRUE(write_safetensors(path, tensors, {}));
    return path;
  }

  std::string message(const DataSource& source, const std::vector<InputSpec>& inputs) const {
    const auto dataset = open_dataset(source, inputs);
    if (dataset) return "no error";
    EXPECT_EQ(dataset.error().kind, ErrorKind::kUsage);
    const std::string prefix = folder_.string() + "/";
    const std::string& text = dataset.error().message;
    return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
  }

  std::filesystem::path folder_;
};

std::string test_file(const std::string& name) {
  return testing::source_path("motley/data/testdata/") + name;
}

const std::vector<InputSpec> kInputs = {{"x", DType::kF32, {2, 3}}, {"y", DType::kI64, {}}};

template <typename T>
std::vector<T> sample(const Dataset& dataset, std::size_t input, std::int64_t index) {
  std::vector<T> values(static_cast<std::size_t>(dataset.sample_bytes(input)) / sizeof(T));
  dataset.read(input, index, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

std::span<const std::byte> zeros(std::size_t count) {
  static const std::vector<std::byte> bytes(4096);
  return {bytes.data(), count};
}

// x = arange(24) as [4, 2, 3], y = 3 1 2 0: by name in one file, as x0, x1 in the other.
TEST_F(DatasetTest, ReadsNpzByNameOrNumber) {
  for (const char* file : {"stored.npz", "deflated.npz"}) {
    SCOPED_TRACE(file);
    const auto dataset = open_dataset({test_file(file)}, kInputs);
    ASSERT_TRUE(dataset) << dataset.error().message;
    EXPECT_EQ((*dataset)->samples(), 4);
    EXPECT_EQ((*dataset)->sample_bytes(0), 24);
    EXPECT_EQ((*dataset)->sample_bytes(1), 8);
    EXPECT_EQ(sample<float>(**dataset, 0, 2), (std::vector<float>{12, 13, 14, 15, 16, 17}));
    EXPECT_EQ(sample<std::int64_t>(**dataset, 1, 0), std::vector<std::int64_t>{3});
  }
}

TEST_F(DatasetTest, ReadsSafetensors) {
  const std::vector<float> x = {1, 2, 3, 4};
  const std::string path =
      write_tensors({{"x0", {DType::kF32, {2, 2}, std::as_bytes(std::span(x))}}});
  const auto dataset = open_dataset({path}, {{"image", DType::kF32, {2}}});
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->samples(), 2);
  EXPECT_EQ(sample<float>(**dataset, 0, 1), (std::vector<float>{3, 4}));
}

TEST_F(DatasetTest, NamesAMissingArrayAndThoseThere) {
  EXPECT_EQ(
      message({test_file("stored.npz")}, {{"x", DType::kF32, {2, 3}}, {"label", DType::kI64, {}}}),
      test_file("stored.npz") +
          ": no array 'label'; found x, y; the model's inputs are x, label, or name the "
          "arrays x0, x1");
  const std::string path = write_tensors({{"imagse", {DType::kF32, {1}, zeros(4)}}});
  EXPECT_EQ(message({path}, {{"images", DType::kF32, {}}}),
            "d.safetensors: no array 'images', did you mean 'imagse'?; found imagse; the model's "
            "inputs are images, or name the arrays x0");
}

TEST_F(DatasetTest, RefusesAnotherTypeWithTheConversion) {
  const std::string path = write_tensors({{"x", {DType::kF64, {2, 3}, zeros(48)}},
                                          {"y", {DType::kU8, {2}, zeros(2)}},
                                          {"z", {DType::kF32, {2}, zeros(8)}}});
  EXPECT_EQ(message({path}, {{"x", DType::kF32, {3}}}),
            "d.safetensors: array 'x': found f64[2, 3], wanted f32[N, 3] (N samples); save "
            "array.astype('float32')");
  EXPECT_EQ(message({path}, {{"y", DType::kI64, {}}}),
            "d.safetensors: array 'y': found u8[2], wanted i64[N] (N samples); save "
            "array.astype('int64')");
  EXPECT_EQ(message({path}, {{"z", DType::kBF16, {}}}),
            "d.safetensors: array 'z': found f32[2], wanted bf16[N] (N samples); save it with this "
            "dtype as .safetensors");
}

TEST_F(DatasetTest, RefusesAnotherShape) {
  const std::string path =
      write_tensors({{"x", {DType::kF32, {2, 3}, zeros(24)}}, {"s", {DType::kF32, {}, zeros(4)}}});
  EXPECT_EQ(message({path}, {{"x", DType::kF32, {1, 3}}}),
            "d.safetensors: array 'x': found f32[2, 3], wanted f32[N, 1, 3] (N samples); reshape "
            "the array, or export the model with inputs of this shape");
  EXPECT_EQ(message({path}, {{"s", DType::kF32, {}}}),
            "d.safetensors: array 's': found f32[], wanted f32[N] (N samples); reshape the array, "
            "or export the model with inputs of this shape");
}

TEST_F(DatasetTest, RefusesUnequalOrNoSamples) {
  const std::string path = write_tensors({{"x", {DType::kF32, {2}, zeros(8)}},
                                          {"y", {DType::kF32, {3}, zeros(12)}},
                                          {"z", {DType::kF32, {0}, zeros(0)}}});
  EXPECT_EQ(message({path}, {{"x", DType::kF32, {}}, {"y", DType::kF32, {}}}),
            "d.safetensors: array 'y' has 3 samples, but 'x' has 2; they must be equal");
  EXPECT_EQ(message({path}, {{"z", DType::kF32, {}}}),
            "d.safetensors: no samples, wanted at least one");
}

TEST_F(DatasetTest, RefusesBrokenFiles) {
  EXPECT_EQ(message({write("d.npz", "PK")}, kInputs),
            "d.npz: not a .npz file (no zip directory at its end); is it truncated?");
  EXPECT_EQ(message({(folder_ / "no.npz").string()}, kInputs), "no.npz: no such file");
  EXPECT_EQ(message({(folder_ / "d.npy").string()}, kInputs), "d.npy: no such file");
  EXPECT_EQ(message({(folder_ / "d.bin").string()}, kInputs),
            "d.bin: neither .npz, .npy nor .safetensors; for a flat file of tokens give the length "
            "of a window with --seq");
  EXPECT_EQ(message({test_file("stored.npz"), 2, 8}, kInputs),
            test_file("stored.npz") + ": --seq is for flat files of tokens only");
  EXPECT_EQ(message({test_file("stored.npz")}, {}),
            test_file("stored.npz") + ": the model has no inputs");
}

std::vector<InputSpec> token_inputs(std::int64_t seq) {
  return {{"tokens", DType::kI64, {seq}}, {"targets", DType::kI64, {seq}}};
}

TEST_F(DatasetTest, CutsTokensIntoWindowsAndTheirNextTokens) {
  // Eight 2-byte tokens 0 ... 6 and 0xffff; windows of 3: floor((8 - 1) / 3) = 2.
  const std::string path = write("t.bin", std::string("\0\0\1\0\2\0\3\0\4\0\5\0\6\0\xff\xff", 16));
  const auto dataset = open_dataset({path, 2, 3}, token_inputs(3));
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->samples(), 2);
  EXPECT_EQ((*dataset)->sample_bytes(0), 24);
  EXPECT_EQ(sample<std::int64_t>(**dataset, 0, 0), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(sample<std::int64_t>(**dataset, 1, 0), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(sample<std::int64_t>(**dataset, 1, 1), (std::vector<std::int64_t>{4, 5, 6}));
  // Windows of 7: one, whose last target is 0xffff, unsigned.
  const auto longer = open_dataset({path, 2, 7}, token_inputs(7));
  EXPECT_EQ((*longer)->samples(), 1);
  EXPECT_EQ(sample<std::int64_t>(**longer, 1, 0).back(), 65535);
  // Four 4-byte tokens, windows of 2: floor(3 / 2) = 1; the first is 0x00010000.
  const auto wide = open_dataset({path, 4, 2}, token_inputs(2));
  EXPECT_EQ((*wide)->samples(), 1);
  EXPECT_EQ(sample<std::int64_t>(**wide, 0, 0), (std::vector<std::int64_t>{0x10000, 0x30002}));
  // A model that makes its own targets takes only the windows: floor(8 / 4) = 2 of 4.
  const auto alone = open_dataset({path, 2, 4}, {{"input_ids", DType::kI64, {4}}});
  EXPECT_EQ((*alone)->samples(), 2);
  EXPECT_EQ(sample<std::int64_t>(**alone, 0, 1), (std::vector<std::int64_t>{4, 5, 6, 65535}));
}

TEST_F(DatasetTest, TakesASliceOfTheSamples) {
  const std::string path = write("t.bin", std::string("\0\0\1\0\2\0\3\0\4\0\5\0\6\0\7\0", 16));
  DataSource source{path, 2, 1, -3, -1};  // the fifth and the sixth of seven windows of one token
  const auto dataset = open_dataset(source, token_inputs(1));
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->samples(), 2);
  EXPECT_EQ((*dataset)->sample_bytes(0), 8);
  EXPECT_EQ(sample<std::int64_t>(**dataset, 0, 0), (std::vector<std::int64_t>{4}));
  EXPECT_EQ(sample<std::int64_t>(**dataset, 1, 1), (std::vector<std::int64_t>{6}));
  source = {path, 2, 1, 9};
  EXPECT_EQ(message(source, token_inputs(1)), "t.bin: the slice has no sample; the data has 7");
}

TEST_F(DatasetTest, RefusesTokensThatDoNotFit) {
  const std::string path = write("t.bin", std::string(7, '\0'));
  EXPECT_EQ(message({path, 2, 3}, token_inputs(3)),
            "t.bin: 7 bytes are no whole number of 2-byte tokens; is it truncated?");
  EXPECT_EQ(message({path, 3, 3}, token_inputs(3)), "t.bin: tokens of 3 bytes, wanted 2 or 4");
  EXPECT_EQ(message({write("s.bin", "abcdef"), 2, 3}, token_inputs(3)),
            "s.bin: 3 tokens, wanted 4 or more for windows of 3");
  EXPECT_EQ(message({write("e.bin", ""), 2, 3}, token_inputs(3)),
            "e.bin: 0 tokens, wanted 4 or more for windows of 3");
  EXPECT_EQ(
      message({path, 2, 4}, token_inputs(3)),
      "t.bin: a token file with windows of 4 gives tokens i64[N, 4] and maybe the next tokens, "
      "but the model's inputs are 'tokens' i64[N, 3], 'targets' i64[N, 3]");
  EXPECT_EQ(
      message({path, 2, 4}, {}),
      "t.bin: a token file with windows of 4 gives tokens i64[N, 4] and maybe the next tokens, "
      "but the model's inputs are none");
}

}  // namespace
}  // namespace motley::data

#include "motley/base/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <cstring>

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string file_of(std::string_view header, std::size_t data) {
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size() & 0xFF);
  file[1] = static_cast<char>(header.size() >> 8);
  return file + std::string(header) + std::string(data, 'd');
}

std::string message_of(std::string_view header, std::size_t data) {
  const std::string file = file_of(header, data);
  const auto parsed = Safetensors::parse(bytes_of(file), "m.motley");
  if (parsed) return "parsed";
  EXPECT_EQ(parsed.error().kind, ErrorKind::kUsage);
  return parsed.error().message;
}

TEST(ParseSafetensors, ReadsTensorsAndMetadata) {
  const std::string file = file_of(
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"I64","shape":[0],"data_offsets":[4,4]}})",
      16);
  const auto parsed = Safetensors::parse(bytes_of(file), "m");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_THAT(parsed->metadata(), ElementsAre(Pair("format", "pt")));
  ASSERT_EQ(parsed->tensors().size(), 3u);
  const TensorView& w = parsed->tensors().at("w");
  EXPECT_EQ(w.dtype, DType::kF16);
  EXPECT_THAT(w.shape, ElementsAre(2, 3));
  EXPECT_EQ(w.bytes.size(), 12u);
  EXPECT_THAT(parsed->tensors().at("b").shape, ElementsAre());
}

TEST(ParseSafetensors, RefusesFilesOfAnotherKind) {
  EXPECT_EQ(Safetensors::parse(bytes_of("short"), "m.motley").error().message,
            "m.motley: 5 bytes, too short for a safetensors file");
  EXPECT_EQ(Safetensors::parse(bytes_of("PK\x03\x04 a zip file"), "m.motley").error().message,
            "m.motley: header of 8800140462016121680 bytes, at most 100000000: not a safetensors "
            "file");
  EXPECT_EQ(message_of("[]", 0), "m.motley: header does not start with '{'");
  EXPECT_EQ(message_of(R"({"a":})", 0),
            "m.motley: header:1:6: syntax error while parsing value - unexpected '}'; expected "
            "'[', '{', or a literal");
}

TEST(ParseSafetensors, RefusesTruncatedFiles) {
  const std::string whole = file_of(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4);
  EXPECT_EQ(Safetensors::parse(bytes_of(whole.substr(0, 30)), "m.motley").error().message,
            "m.motley: truncated: header of 53 bytes in a file of 30");
  EXPECT_EQ(
      Safetensors::parse(bytes_of(whole.substr(0, whole.size() - 1)), "m.motley").error().message,
      "m.motley: tensor 'w': 'data_offsets' [0,4] do not lie in the 3 bytes of data");
}

TEST(ParseSafetensors, RefusesTensorsThatDoNotAddUp) {
  EXPECT_EQ(message_of(R"({"w":{"dtype":"U8","shape":[3],"data_offsets":[0,4]}})", 4),
            "m.motley: tensor 'w': 4 bytes do not fit dtype U8 and shape [3]");
  EXPECT_EQ(
      message_of(R"({"w":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
      "m.motley: tensor 'w': 0 bytes do not fit dtype U8 and shape [4294967296,4294967296]");
  EXPECT_EQ(message_of(R"({"w":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", 4),
            "m.motley: tensor 'w': unsupported dtype 'F8_E4M3'");
  EXPECT_EQ(message_of(R"({"w":{"dtype":"U8","shape":[-1],"data_offsets":[0,4]}})", 4),
            "m.motley: tensor 'w': 'shape' must hold non-negative integers");
  EXPECT_EQ(message_of(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4),
            "m.motley: tensor 'w': 'data_offsets' [4,0] do not lie in the 4 bytes of data");
  EXPECT_EQ(message_of(R"({"w":{"dtype":"U8","data_offsets":[0,4]}})", 4),
            "m.motley: tensor 'w': wanted a list 'shape'");
  EXPECT_EQ(message_of(R"({"w":{"shape":[4],"data_offsets":[0,4]}})", 4),
            "m.motley: tensor 'w': wanted a string 'dtype'");
  EXPECT_EQ(message_of(R"({"w":7})", 0), "m.motley: tensor 'w': wanted an object");
  EXPECT_EQ(message_of(R"({"__metadata__":{"format":7}})", 0),
            "m.motley: '__metadata__' must be an object of strings");
}

TEST(ParseSafetensors, RefusesOverlapsHolesAndLeftovers) {
  const auto two = [](int a, int b, int c, int d) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}},)"
                       R"("b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
                       b - a, a, b, d - c, c, d);
  };
  EXPECT_EQ(message_of(two(0, 4, 4, 8), 8), "parsed");
  EXPECT_EQ(message_of(two(0, 4, 3, 8), 8), "m.motley: tensors overlap at byte 3 of the data");
  EXPECT_EQ(message_of(two(0, 4, 5, 8), 8), "m.motley: hole at byte 4 of the data");
  EXPECT_EQ(message_of(two(1, 4, 4, 8), 8), "m.motley: hole at byte 0 of the data");
  EXPECT_EQ(message_of(two(0, 4, 4, 8), 9), "m.motley: 1 bytes after the last tensor");
}

class WriteSafetensorsTest : public ::testing::Test {
 protected:
  void TearDown() override { ::unlink(path_.c_str()); }
  const std::string path_ =
      ::testing::TempDir() + "motley_safetensors_test_" + std::to_string(getpid()) + ".safetensors";
};

TEST_F(WriteSafetensorsTest, OrdersByElementSizeThenNameAndAligns) {
  const std::string data(64, 'x');
  const std::vector<NamedTensor> tensors = {{"m", {DType::kBool, {3}, bytes_of("abc")}},
                                            {"z", {DType::kF32, {2}, bytes_of("01234567")}},
                                            {"a", {DType::kF32, {1, 1}, bytes_of("abcd")}}};
  ASSERT_TRUE(write_safetensors(path_, tensors, {{"step", "7"}}));
  const std::string file = *read_file(path_);
  const std::string header = R"({"__metadata__":{"format":"pt","step":"7"},)"
                             R"("a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
                             R"("z":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},)"
                             R"("m":{"dtype":"BOOL","shape":[3],"data_offsets":[12,15]}})";
  EXPECT_EQ(file.substr(8, header.size()), header);
  EXPECT_EQ(file.substr(file.size() - 15), "abcd01234567abc");
  EXPECT_EQ((file.size() - 15) % 8, 0u);
  const auto opened = Safetensors::open(path_);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(std::memcmp(opened->tensors().at("z").bytes.data(), "01234567", 8), 0);
}

TEST_F(WriteSafetensorsTest, NamesAFullDisk) {
  // Writing below a device file cannot work. AtomicFile tests a real full disk.
  const auto result = write_safetensors("/dev/null/x", {}, {});
  EXPECT_EQ(result.error().message, "/dev/null/x: cannot be written: not a directory");
}

TEST_F(WriteSafetensorsTest, RefusesNamesThatAreNotText) {
  const std::vector<NamedTensor> tensors = {{"\xFF", {DType::kBool, {0}, {}}}};
  EXPECT_EQ(write_safetensors(path_, tensors, {}).error().message,
            path_ + ": a tensor name or metadata text is not UTF-8");
}

RC_GTEST_FIXTURE_PROP(WriteSafetensorsTest, ReadsBackWhatWasWritten, ()) {
  const auto text = rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::inRange(' ', '~')));
  const auto names = *rc::gen::nonEmpty(rc::gen::unique<std::vector<std::string>>(text));
  std::vector<std::string> data;
  std::vector<NamedTensor> tensors;
  data.reserve(names.size());
  for (const std::string& name : names) {
    const auto dtype = static_cast<DType>(*rc::gen::inRange(0, 10));
    const auto rank = *rc::gen::inRange<std::size_t>(0, 4);
    const auto shape =
        *rc::gen::container<std::vector<std::int64_t>>(rank, rc::gen::inRange<std::int64_t>(0, 4));
    std::int64_t size = dtype_size(dtype);
    for (const std::int64_t dimension : shape) size *= dimension;
    data.push_back(std::string(static_cast<std::size_t>(size), static_cast<char>(data.size())));
    tensors.push_back({name, {dtype, shape, bytes_of(data.back())}});
  }
  ASSERT_TRUE(write_safetensors(path_, tensors, {}));
  const auto opened = Safetensors::open(path_);
  RC_ASSERT(opened.has_value());
  RC_ASSERT(opened->tensors().size() == tensors.size());
  for (const NamedTensor& written : tensors) {
    const TensorView& read = opened->tensors().at(written.name);
    RC_ASSERT(read.dtype == written.tensor.dtype);
    RC_ASSERT(read.shape == written.tensor.shape);
    RC_ASSERT(std::equal(read.bytes.begin(), read.bytes.end(), written.tensor.bytes.begin(),
                         written.tensor.bytes.end()));
  }
}

}  // namespace
}  // namespace motley

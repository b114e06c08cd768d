#include "motley/run/checkpoints/tensor_files.h"

#include <gmock/gmock.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>

#include "motley/base/file.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;
using program::Part;
using ::testing::ElementsAre;

class Folder {
 public:
  Folder() {
    std::string pattern = ::testing::TempDir() + "motley-tensors-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path_); }

  void write(const std::vector<float>& values, std::vector<std::int64_t> shape,
             std::optional<TensorPlace> place = {}) {
    const std::string path = path_ + "/" + std::to_string(files_.size()) + ".safetensors";
    const SavedTensor saved{
        {"w", {DType::kF32, std::move(shape), std::as_bytes(std::span<const float>(values))}},
        std::move(place)};
    ASSERT_TRUE(write_tensor_file(path, {&saved, 1}));
    auto opened = Safetensors::open(path);
    ASSERT_TRUE(opened) << opened.error().message;
    files_.push_back(std::make_unique<Safetensors>(std::move(*opened)));
  }
  Result<TensorFiles> open(TensorFiles::Extent extent = TensorFiles::Extent::kAll) const {
    std::vector<TensorFile> files;
    for (std::size_t i = 0; i < files_.size(); ++i)
      files.push_back({"file " + std::to_string(i), files_[i].get()});
    return TensorFiles::make(files, extent);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<std::unique_ptr<Safetensors>> files_;
};

program::Buffer buffer_of(std::vector<std::int64_t> shape, std::optional<Part> part = {}) {
  return {program::BufferKind::kParameter, DType::kF32, std::move(shape), "w", {}, part};
}

std::vector<float> read(const TensorFiles& files, const program::Buffer& buffer) {
  std::vector<float> values(static_cast<std::size_t>(buffer.elements()), -1);
  const auto done = files.read(buffer, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(done) << done.error().message;
  return values;
}

std::string open_error(const Folder& folder) {
  const auto files = folder.open();
  EXPECT_FALSE(files);
  return files ? "" : files.error().message;
}

// 0 to 11 as [4, 3]: rows 0 to 2 in one file, row 3 in another.
void write_rows(Folder& folder) {
  folder.write({9, 10, 11}, {1, 3}, TensorPlace{{4, 3}, {1, 3, 4, 3}});
  folder.write({0, 1, 2, 3, 4, 5, 6, 7, 8}, {3, 3}, TensorPlace{{4, 3}, {1, 0, 4, 3}});
}

TEST(TensorFiles, ReadsPartsCutInAnyWay) {
  Folder folder;
  write_rows(folder);
  const auto files = folder.open();
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_THAT(files->names(), ElementsAre("w"));
  EXPECT_THAT(read(*files, buffer_of({4, 3})), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  // Rows 2 and 3, one from each file.
  EXPECT_THAT(read(*files, buffer_of({2, 3}, Part{1, 2, 4, 3})), ElementsAre(6, 7, 8, 9, 10, 11));
  // Column 1: [4, 3, 1].
  EXPECT_THAT(read(*files, buffer_of({4, 1}, Part{4, 1, 3, 1})), ElementsAre(1, 4, 7, 10));
  // Row 1 of each half: [2, 2, 3].
  EXPECT_THAT(read(*files, buffer_of({2, 3}, Part{2, 1, 2, 3})), ElementsAre(3, 4, 5, 9, 10, 11));
  EXPECT_THAT(read(*files, buffer_of({0, 3}, Part{1, 4, 4, 3})), ElementsAre());
}

TEST(TensorFiles, WritesThemWhole) {
  Folder folder;
  write_rows(folder);
  const std::string path = folder.path() + "/whole.safetensors";
  ASSERT_TRUE(folder.open()->write_whole(path));
  const auto file = Safetensors::open(path);
  ASSERT_TRUE(file);
  EXPECT_FALSE(file->metadata().contains("motley.parts"));
  const TensorFile whole{path, &*file};
  EXPECT_THAT(read(*TensorFiles::make({&whole, 1}), buffer_of({4, 3})),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

RC_GTEST_PROP(TensorFiles, AnyCutReadsBackByAnyOther, ()) {
  const std::vector<std::int64_t> shape = {*rc::gen::element<std::int64_t>(1, 2, 6, 12),
                                           *rc::gen::element<std::int64_t>(1, 3, 4)};
  std::vector<float> all(static_cast<std::size_t>(shape[0] * shape[1]));
  std::iota(all.begin(), all.end(), 0.0F);
  struct Cut {
    std::vector<program::Buffer> buffers;
    std::vector<std::vector<float>> values;
  };
  const auto cut = [&] {
    const auto dim = *rc::gen::inRange<std::size_t>(0, 2);
    const std::int64_t outer = shape[dim] % 2 == 0 ? *rc::gen::inRange<std::int64_t>(1, 3) : 1;
    const std::int64_t extent = shape[dim] / outer;
    const std::int64_t before = outer * (dim == 1 ? shape[0] : 1), after = dim == 0 ? shape[1] : 1;
    Cut parts;
    std::int64_t begin = 0;
    for (int left = *rc::gen::inRange(1, 5); left > 0; --left) {  // parts, some of them empty
      const std::int64_t rest = extent - begin;
      const std::int64_t count = left == 1 ? rest : *rc::gen::inRange<std::int64_t>(0, rest + 1);
      std::vector<std::int64_t> local = shape;
      local[dim] = outer * count;
      parts.buffers.push_back(buffer_of(local, Part{before, begin, extent, after}));
      std::vector<float>& values = parts.values.emplace_back();
      for (std::int64_t b = 0; b < before; ++b)
        for (std::int64_t i = (b * extent + begin) * after;
             i < (b * extent + begin + count) * after; ++i)
          values.push_back(all[static_cast<std::size_t>(i)]);
      begin += count;
    }
    return parts;
  };
  const Cut written = cut(), wanted = cut();
  Folder folder;
  for (std::size_t i = 0; i < written.buffers.size(); ++i)
    folder.write(written.values[i], written.buffers[i].shape,
                 TensorPlace{shape, *written.buffers[i].part});
  const auto files = folder.open();
  RC_ASSERT(files.has_value());
  RC_ASSERT(read(*files, buffer_of(shape)) == all);
  for (std::size_t i = 0; i < wanted.buffers.size(); ++i)
    RC_ASSERT(read(*files, wanted.buffers[i]) == wanted.values[i]);
}

TEST(TensorFiles, SomePartsAreReadAndOthersRefused) {
  Folder folder;
  folder.write({3, 4, 5, 6}, {2, 2}, TensorPlace{{4, 2}, {1, 1, 4, 2}});
  EXPECT_FALSE(folder.open().has_value());
  const auto files = folder.open(TensorFiles::Extent::kSome);
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_THAT(read(*files, buffer_of({1, 2}, Part{1, 2, 4, 2})), ElementsAre(5, 6));
  std::vector<std::byte> target(2 * 2 * sizeof(float));
  const auto missing = files->read(buffer_of({2, 2}, Part{1, 2, 4, 2}), target);
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().message, "tensor 'w': the file has other parts of it than rows 2 to 4");
  EXPECT_FALSE(files->read(buffer_of({4, 1}, Part{4, 0, 2, 1}), target).has_value());
}

TEST(TensorFiles, SayWhatIsMissing) {
  Folder folder;
  folder.write({0, 1}, {2, 1}, TensorPlace{{4, 1}, {1, 0, 4, 1}});
  EXPECT_EQ(open_error(folder), "tensor 'w': its parts have 2 of 4 rows");
  folder.write({3}, {1, 1}, TensorPlace{{4, 1}, {1, 3, 4, 1}});
  EXPECT_EQ(open_error(folder), "tensor 'w': its parts leave a hole at row 2 of 4");
  folder.write({1, 2, 3}, {3, 1}, TensorPlace{{4, 1}, {1, 1, 4, 1}});
  EXPECT_EQ(open_error(folder), "tensor 'w': its parts overlap at row 1 of 4");
}

TEST(TensorFiles, RefuseWhatDoesNotFit) {
  Folder folder;
  folder.write({0, 1}, {2, 1}, TensorPlace{{4, 1}, {1, 3, 4, 1}});
  EXPECT_EQ(open_error(folder),
            "file 0: tensor 'w' of f32[2, 1] is no part of f32[4, 1] as it says");
  Folder twice;
  twice.write({0, 1}, {2});
  twice.write({0, 1}, {1, 2});
  EXPECT_EQ(open_error(twice), "file 1: tensor 'w' is another one than in the files before");
  Folder whole;
  whole.write({0, 1}, {2});
  const auto files = whole.open();
  ASSERT_TRUE(files);
  std::vector<float> three(3);
  const auto target = std::as_writable_bytes(std::span(three));
  EXPECT_EQ(files->read(buffer_of({3}), target).error().message,
            "tensor 'w': found f32[2], wanted f32[3]");
  EXPECT_EQ(files->read(buffer_of({3}, Part{1, 0, 3, 1}), target).error().message,
            "tensor 'w': found f32[2], wanted one of a part of f32[3]");
  program::Buffer other = buffer_of({2});
  other.name = "v";
  EXPECT_EQ(files->read(other, target).error().message, "no tensor 'v' in the file, wanted f32[2]");
}

}  // namespace
}  // namespace motley::run

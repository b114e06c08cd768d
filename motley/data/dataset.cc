#include "motley/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "motley/base/check.h"
#include "motley/base/file.h"
#include "motley/base/safetensors.h"
#include "motley/base/text.h"
#include "motley/data/excerpt.h"
#include "motley/data/npz.h"
#include "motley/data/tokens.h"

namespace motley::data {
namespace {

constexpr const char* kNpy = ".npy";

// Returns "f32[N, 1, 8, 8]".
std::string describe(const InputSpec& input) {
  std::string text = fmt::format("{}[N", dtype_name(input.dtype));
  for (const std::int64_t size : input.sample_shape) text += fmt::format(", {}", size);
  return text + "]";
}

std::string describe(const TensorView& array) {
  return fmt::format("{}[{}]", dtype_name(array.dtype), fmt::join(array.shape, ", "));
}

std::string_view numpy_name(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "float64";
    case DType::kF32:
      return "float32";
    case DType::kF16:
      return "float16";
    case DType::kI64:
      return "int64";
    case DType::kI32:
      return "int32";
    case DType::kI16:
      return "int16";
    case DType::kI8:
      return "int8";
    case DType::kU8:
      return "uint8";
    case DType::kBool:
      return "bool";
    case DType::kBF16:
    case DType::kC64:
    case DType::kC128:
    case DType::kNone:
      break;
  }
  return {};
}

/// Named arrays of a file in any format.
struct Arrays {
  std::vector<std::string> names;  ///< sorted
  std::function<Result<TensorView>(const std::string&)> get;
  std::shared_ptr<void> file;  ///< keeps the views alive

  bool has(const std::string& name) const {
    return std::binary_search(names.begin(), names.end(), name);
  }
};

Result<Arrays> open_npz(const std::string& path) {
  MOTLEY_ASSIGN(Npz opened, Npz::open(path));
  const auto npz = std::make_shared<Npz>(std::move(opened));
  return Arrays{npz->names(), [npz](const std::string& name) { return npz->array(name); }, npz};
}

Result<Arrays> open_safetensors(const std::string& path) {
  MOTLEY_ASSIGN(Safetensors opened, Safetensors::open(path));
  const auto file = std::make_shared<Safetensors>(std::move(opened));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file->tensors()) names.push_back(name);
  return Arrays{
      std::move(names),
      [file](const std::string& name) -> Result<TensorView> { return file->tensors().at(name); },
      file};
}

/// Opens a folder of .npy files, one array each, or one such file, as the array x0.
Result<Arrays> open_npy(const std::string& path) {
  struct Opened {
    std::vector<MappedFile> files;
    std::map<std::string, TensorView> arrays;
  };
  const auto opened = std::make_shared<Opened>();
  const auto add = [&](const std::string& name, const std::string& file) -> Result<void> {
    MOTLEY_ASSIGN(MappedFile mapped, MappedFile::open(file));
    MOTLEY_ASSIGN(opened->arrays[name], parse_npy(mapped.bytes(), file));
    opened->files.push_back(std::move(mapped));
    return {};
  };
  if (path.ends_with(kNpy)) {
    MOTLEY_RETURN_IF_ERROR(add("x0", path));
  } else {
    std::error_code fault;
    for (const auto& entry : std::filesystem::directory_iterator(path, fault))
      if (entry.path().extension() == kNpy)
        MOTLEY_RETURN_IF_ERROR(add(entry.path().stem().string(), entry.path().string()));
    if (fault) return usage_error("base.file", path + ": " + fault.message());
  }
  std::vector<std::string> names;
  for (const auto& [name, array] : opened->arrays) names.push_back(name);
  return Arrays{
      std::move(names),
      [opened](const std::string& name) -> Result<TensorView> { return opened->arrays.at(name); },
      opened};
}

class ArrayDataset : public Dataset {
 public:
  struct Column {
    std::span<const std::byte> bytes;
    std::int64_t sample_bytes = 0;
  };
  ArrayDataset(std::int64_t samples, std::vector<Column> columns, std::shared_ptr<void> file)
      : samples_(samples), columns_(std::move(columns)), file_(std::move(file)) {}

  std::int64_t samples() const override { return samples_; }
  std::int64_t sample_bytes(std::size_t input) const override {
    return columns_[input].sample_bytes;
  }
  void read(std::size_t input, std::int64_t sample, std::byte* out) const override {
    MOTLEY_CHECK(input < columns_.size() && sample >= 0 && sample < samples_);
    // memcpy must not get null, which an array of no bytes may be.
    const auto size = static_cast<std::size_t>(columns_[input].sample_bytes);
    if (size == 0) return;
    std::memcpy(out, columns_[input].bytes.data() + static_cast<std::size_t>(sample) * size, size);
  }

 private:
  std::int64_t samples_;
  std::vector<Column> columns_;
  std::shared_ptr<void> file_;
};

class ArrayMatcher {
 public:
  ArrayMatcher(const std::string& path, const Arrays& arrays, const std::vector<InputSpec>& inputs)
      : path_(path), arrays_(arrays), inputs_(inputs) {}

  Result<std::unique_ptr<Dataset>> match() {
    MOTLEY_ASSIGN(const std::vector<std::string> names, array_names());
    std::int64_t samples = 0;
    std::vector<ArrayDataset::Column> columns;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      MOTLEY_ASSIGN(const TensorView array, arrays_.get(names[i]));
      MOTLEY_RETURN_IF_ERROR(check(array, names[i], inputs_[i]));
      if (i > 0 && array.shape[0] != samples) {
        return fault("data.samples", fmt::format("array '{}' has {} samples, but '{}' has {}; they "
                                                 "must be equal",
                                                 names[i], array.shape[0], names[0], samples));
      }
      samples = array.shape[0];
      columns.push_back({array.bytes, sample_bytes(inputs_[i])});
    }
    if (samples == 0) return fault("data.empty", "no samples, wanted at least one");
    return std::make_unique<ArrayDataset>(samples, std::move(columns), arrays_.file);
  }

 private:
  // Returns the inputs' own names, else x0, x1, ...
  Result<std::vector<std::string>> array_names() const {
    std::vector<std::string> own, numbered;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      own.push_back(inputs_[i].name);
      numbered.push_back(fmt::format("x{}", i));
    }
    const auto has_all = [&](const std::vector<std::string>& names) {
      return std::all_of(names.begin(), names.end(),
                         [&](const std::string& name) { return arrays_.has(name); });
    };
    // All or nothing: half of the names would pair an input with another one's array.
    if (has_all(own)) return own;
    if (has_all(numbered)) return numbered;
    const auto missing = std::find_if(own.begin(), own.end(),
                                      [&](const std::string& name) { return !arrays_.has(name); });
    return fault("data.missing-array",
                 fmt::format("no array '{}'{}; found {}; the model's inputs are {}, or name the "
                             "arrays {}",
                             *missing, suggestion_clause(*missing, arrays_.names),
                             arrays_.names.empty() ? "none" : join(arrays_.names, ", "),
                             join(own, ", "), join(numbered, ", ")));
  }

  Result<void> check(const TensorView& array, const std::string& name,
                     const InputSpec& input) const {
    const bool has_shape =
        array.shape.size() == input.sample_shape.size() + 1 &&
        std::equal(input.sample_shape.begin(), input.sample_shape.end(), array.shape.begin() + 1);
    if (has_shape && array.dtype == input.dtype) return {};
    const std::string found = fmt::format("array '{}': found {}, wanted {} (N samples)", name,
                                          describe(array), describe(input));
    if (!has_shape) {
      return fault("data.shape", fmt::format("{}; reshape the array, or export the model with "
                                             "inputs of this shape",
                                             found));
    }
    const std::string_view numpy = numpy_name(input.dtype);
    return fault("data.dtype",
                 numpy.empty() ? fmt::format("{}; save it with this dtype as .safetensors", found)
                               : fmt::format("{}; save array.astype('{}')", found, numpy));
  }

  tl::unexpected<Error> fault(std::string code, const std::string& message) const {
    return usage_error(std::move(code), fmt::format("{}: {}", path_, message));
  }

  const std::string& path_;
  const Arrays& arrays_;
  const std::vector<InputSpec>& inputs_;
};

/// A flat file of unsigned tokens: sample i is [i*seq, (i+1)*seq), shifted by 1 for a second input.
class TokenDataset : public Dataset {
 public:
  TokenDataset(MappedFile file, std::size_t width, std::int64_t seq, std::size_t inputs)
      : file_(std::move(file)), width_(width), seq_(seq), inputs_(inputs) {}

  std::int64_t samples() const override {
    const auto tokens = static_cast<std::int64_t>(file_.bytes().size() / width_);
    // Two inputs need one token more than the windows: the last target follows the last input.
    return (tokens + 1 - static_cast<std::int64_t>(inputs_)) / seq_;
  }
  std::int64_t sample_bytes(std::size_t) const override { return 8 * seq_; }

  void read(std::size_t input, std::int64_t sample, std::byte* out) const override {
    MOTLEY_CHECK(input < inputs_ && sample >= 0 && sample < samples());
    const auto first = static_cast<std::size_t>(sample * seq_) + input;
    const std::byte* from = file_.bytes().data() + first * width_;
    read_tokens(from, width_, seq_, out);
  }

  StoredTokens stored_tokens() const override { return {width_, seq_}; }
  std::int64_t stored_bytes(std::size_t input) const override {
    const std::int64_t tokens = seq_ + static_cast<std::int64_t>(inputs_) - 1;
    return input == 0 ? tokens * static_cast<std::int64_t>(width_) : 0;
  }
  void read_stored(std::size_t input, std::int64_t sample, std::byte* out) const override {
    const auto first = static_cast<std::size_t>(sample * seq_) * width_;
    std::memcpy(out, file_.bytes().data() + first, static_cast<std::size_t>(stored_bytes(input)));
  }

 private:
  MappedFile file_;
  std::size_t width_;
  std::int64_t seq_;
  std::size_t inputs_;
};

Result<void> check_token_inputs(const DataSource& source, const std::vector<InputSpec>& inputs) {
  const bool fits = (inputs.size() == 1 || inputs.size() == 2) &&
                    std::all_of(inputs.begin(), inputs.end(), [&](const InputSpec& input) {
                      return input.dtype == DType::kI64 &&
                             input.sample_shape == std::vector<std::int64_t>{source.seq};
                    });
  if (fits) return {};
  std::vector<std::string> wanted;
  for (const InputSpec& input : inputs) {
    wanted.push_back(fmt::format("'{}' {}", input.name, describe(input)));
  }
  return usage_error("data.tokens",
                     fmt::format("{}: a token file with windows of {} gives tokens i64[N, {}] and "
                                 "maybe the next tokens, but the model's inputs are {}",
                                 source.path, source.seq, source.seq,
                                 wanted.empty() ? "none" : join(wanted, ", ")));
}

Result<std::unique_ptr<Dataset>> open_tokens(const DataSource& source,
                                             const std::vector<InputSpec>& inputs) {
  if (source.token_width != 2 && source.token_width != 4) {
    return usage_error("data.tokens", fmt::format("{}: tokens of {} bytes, wanted 2 or 4",
                                                  source.path, source.token_width));
  }
  if (source.seq < 1) {
    return usage_error("data.format",
                       fmt::format("{}: neither .npz, .npy nor .safetensors; for a flat file of "
                                   "tokens give the length of a window with --seq",
                                   source.path));
  }
  MOTLEY_RETURN_IF_ERROR(check_token_inputs(source, inputs));
  MOTLEY_ASSIGN(MappedFile file, MappedFile::open(source.path));
  const auto width = static_cast<std::size_t>(source.token_width);
  const std::size_t size = file.bytes().size();
  if (size % width != 0) {
    return usage_error("data.tokens", fmt::format("{}: {} bytes are no whole number of {}-byte "
                                                  "tokens; is it truncated?",
                                                  source.path, size, width));
  }
  const auto tokens = static_cast<std::int64_t>(size / width);
  const auto least = source.seq + static_cast<std::int64_t>(inputs.size()) - 1;
  if (tokens < least) {
    return usage_error("data.empty", fmt::format("{}: {} tokens, wanted {} or more for windows of "
                                                 "{}",
                                                 source.path, tokens, least, source.seq));
  }
  return std::make_unique<TokenDataset>(std::move(file), width, source.seq, inputs.size());
}

}  // namespace

std::int64_t sample_bytes(const InputSpec& input) {
  std::int64_t bytes = dtype_size(input.dtype);
  for (const std::int64_t size : input.sample_shape) bytes *= size;
  return bytes;
}

namespace {

class SlicedDataset : public Dataset {
 public:
  SlicedDataset(std::unique_ptr<Dataset> all, std::int64_t begin, std::int64_t end)
      : all_(std::move(all)), begin_(begin), samples_(end - begin) {}
  std::int64_t samples() const override { return samples_; }
  std::int64_t sample_bytes(std::size_t input) const override { return all_->sample_bytes(input); }
  void read(std::size_t input, std::int64_t sample, std::byte* out) const override {
    all_->read(input, begin_ + sample, out);
  }
  bool has(std::int64_t sample) const override { return all_->has(begin_ + sample); }
  StoredTokens stored_tokens() const override { return all_->stored_tokens(); }
  std::int64_t stored_bytes(std::size_t input) const override { return all_->stored_bytes(input); }
  void read_stored(std::size_t input, std::int64_t sample, std::byte* out) const override {
    all_->read_stored(input, begin_ + sample, out);
  }

 private:
  std::unique_ptr<Dataset> all_;
  std::int64_t begin_, samples_;
};

/// Returns the function that opens files of this name as arrays; null if there is none.
Result<Arrays> (*find_format(const std::string& path))(const std::string&) {
  if (path.ends_with(".npz")) return open_npz;
  if (path.ends_with(".safetensors")) return open_safetensors;
  if (path.ends_with(kNpy) || std::filesystem::is_directory(path)) return open_npy;
  return nullptr;
}

Result<std::unique_ptr<Dataset>> open_whole(const DataSource& source,
                                            const std::vector<InputSpec>& inputs) {
  if (source.path.ends_with(kExcerptEnding)) return open_excerpt(source.path, inputs);
  const auto open_arrays = find_format(source.path);
  if (open_arrays == nullptr) return open_tokens(source, inputs);
  if (source.seq != 0) {
    return usage_error("data.tokens",
                       fmt::format("{}: --seq is for flat files of tokens only", source.path));
  }
  if (inputs.empty()) {
    return usage_error("data.inputs", fmt::format("{}: the model has no inputs", source.path));
  }
  MOTLEY_ASSIGN(const Arrays arrays, open_arrays(source.path));
  return ArrayMatcher(source.path, arrays, inputs).match();
}

}  // namespace

Result<std::unique_ptr<Dataset>> open_dataset(const DataSource& source,
                                              const std::vector<InputSpec>& inputs) {
  MOTLEY_ASSIGN(std::unique_ptr<Dataset> all, open_whole(source, inputs));
  if (source.begin == 0 && !source.end) return all;
  MOTLEY_ASSIGN(const Slice slice, slice_of(source, all->samples()));
  return std::make_unique<SlicedDataset>(std::move(all), slice.begin, slice.end);
}

std::vector<std::int64_t> input_offsets(const std::vector<InputSpec>& inputs,
                                        std::int64_t samples) {
  constexpr std::int64_t kAlignment = 64;
  std::vector<std::int64_t> offsets = {0};
  for (const InputSpec& input : inputs) {
    const std::int64_t bytes = samples * sample_bytes(input);
    offsets.push_back(offsets.back() + (bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
  return offsets;
}

Result<void> check_readable(const DataSource& source) {
  if (std::filesystem::is_directory(source.path)) return {};
  MOTLEY_RETURN_IF_ERROR(MappedFile::open(source.path));
  return {};
}

}  // namespace motley::data

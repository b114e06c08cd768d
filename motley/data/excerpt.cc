#include "motley/data/excerpt.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "motley/base/check.h"
#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/data/tokens.h"

namespace motley::data {
namespace {

constexpr const char* kExcerptSchema = "motley.excerpt/1";
constexpr std::int64_t kAlignment = 64;
constexpr std::size_t kExcerptPiece = std::size_t{1} << 20;
constexpr std::int64_t kMostSamples = std::int64_t{1} << 48, kMostRow = std::int64_t{1} << 40;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Json inputs_to_json(const std::vector<InputSpec>& inputs) {
  Json json = Json::array();
  for (const InputSpec& input : inputs)
    json.push_back(
        {{"name", input.name}, {"dtype", dtype_name(input.dtype)}, {"shape", input.sample_shape}});
  return json;
}

/// Collects small pieces and pads to where the next part begins.
class Pieces {
 public:
  explicit Pieces(const Excerpt::Sink& sink) : sink_(sink) {}
  Result<std::byte*> add(std::size_t bytes) {
    if (!text_.empty() && text_.size() + bytes > kExcerptPiece) MOTLEY_RETURN_IF_ERROR(flush());
    text_.resize(text_.size() + bytes);
    written_ += static_cast<std::int64_t>(bytes);
    return reinterpret_cast<std::byte*>(text_.data() + text_.size() - bytes);
  }
  Result<void> align() {
    MOTLEY_RETURN_IF_ERROR(add(static_cast<std::size_t>(aligned(written_) - written_)));
    return {};
  }
  Result<void> flush() {
    if (text_.empty()) return {};
    MOTLEY_RETURN_IF_ERROR(sink_(text_));
    text_.clear();
    return {};
  }

 private:
  const Excerpt::Sink& sink_;
  std::string text_;
  std::int64_t written_ = 0;
};

class ExcerptDataset : public Dataset {
 public:
  struct Column {
    const std::byte* rows = nullptr;
    std::int64_t row_bytes = 0;
  };
  ExcerptDataset(MappedFile file, StoredTokens tokens) : file_(std::move(file)), tokens_(tokens) {}

  Result<void> open(const Json& header, std::int64_t begin, const std::vector<InputSpec>& inputs) {
    samples_ = header.at("samples");
    kept_ = header.at("kept");
    const std::vector<std::int64_t> rows = header.at("row_bytes");
    const auto size = static_cast<std::int64_t>(file_.bytes().size());
    bool fits = samples_ > 0 && samples_ <= kMostSamples && kept_ >= 0 && kept_ <= samples_ &&
                rows.size() == inputs.size();
    std::int64_t at = aligned(begin);
    numbers_ = file_.bytes().data() + at;
    at = aligned(at + 8 * kept_);
    for (std::size_t i = 0; fits && i < rows.size(); ++i) {
      fits = rows[i] >= 0 && rows[i] <= kMostRow && (rows[i] == 0 || kept_ <= size / rows[i]);
      if (!fits) break;
      columns_.push_back({file_.bytes().data() + at, rows[i]});
      sample_bytes_.push_back(data::sample_bytes(inputs[i]));
      at = aligned(at + kept_ * rows[i]);
    }
    if (!fits || at != size || !has_row_sizes())
      return usage_error("data.excerpt", "its sizes do not fit: it is damaged");
    for (std::int64_t row = 0; row < kept_; ++row)
      if (number(row) < 0 || number(row) >= samples_ || (row > 0 && number(row - 1) >= number(row)))
        return usage_error("data.excerpt", "its samples' numbers are not in order: it is damaged");
    return {};
  }

  std::int64_t samples() const override { return samples_; }
  std::int64_t sample_bytes(std::size_t input) const override { return sample_bytes_[input]; }
  bool has(std::int64_t sample) const override { return find(sample) < kept_; }
  void read(std::size_t input, std::int64_t sample, std::byte* out) const override {
    const std::int64_t row = find(sample);
    MOTLEY_CHECK(input < columns_.size() && row < kept_);
    const Column& column = columns_[tokens_.width > 0 ? 0 : input];
    const std::byte* from = column.rows + row * column.row_bytes;
    if (tokens_.width > 0)
      read_tokens(from + input * tokens_.width, tokens_.width, tokens_.seq, out);
    else if (column.row_bytes > 0)
      std::memcpy(out, from, static_cast<std::size_t>(column.row_bytes));
  }

 private:
  bool has_row_sizes() const {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const auto window = static_cast<std::int64_t>(tokens_.width) *
                          (tokens_.seq + static_cast<std::int64_t>(columns_.size()) - 1);
      const std::int64_t wanted =
          tokens_.width == 0 ? sample_bytes_[i] : (i == 0 ? window : std::int64_t{0});
      if (columns_[i].row_bytes != wanted) return false;
    }
    return true;
  }
  std::int64_t number(std::int64_t row) const {
    std::int64_t value = 0;
    std::memcpy(&value, numbers_ + 8 * row, sizeof value);
    return value;
  }
  /// Returns the sample's row; `kept_` if it is missing.
  std::int64_t find(std::int64_t sample) const {
    std::int64_t begin = 0, end = kept_;
    while (begin < end) {
      const std::int64_t middle = begin + (end - begin) / 2;
      if (number(middle) < sample)
        begin = middle + 1;
      else
        end = middle;
    }
    return begin < kept_ && number(begin) == sample ? begin : kept_;
  }

  MappedFile file_;
  StoredTokens tokens_;
  std::int64_t samples_ = 0, kept_ = 0;
  const std::byte* numbers_ = nullptr;
  std::vector<Column> columns_;
  std::vector<std::int64_t> sample_bytes_;
};

}  // namespace

void SampleSet::add(std::int64_t sample) {
  MOTLEY_CHECK(sample >= 0 && sample < samples_);
  std::uint64_t& word = bits_[static_cast<std::size_t>(sample / 64)];
  const std::uint64_t bit = std::uint64_t{1} << (sample % 64);
  count_ += (word & bit) == 0;
  word |= bit;
}

bool SampleSet::has(std::int64_t sample) const {
  return (bits_[static_cast<std::size_t>(sample / 64)] >> (sample % 64) & 1) != 0;
}

std::int64_t SampleSet::next(std::int64_t from) const {
  if (from >= samples_) return samples_;
  auto at = static_cast<std::size_t>(from / 64);
  std::uint64_t word = bits_[at] >> (from % 64) << (from % 64);
  while (word == 0 && ++at < bits_.size()) word = bits_[at];
  return word == 0 ? samples_ : static_cast<std::int64_t>(at) * 64 + std::countr_zero(word);
}

Excerpt::Excerpt(const Dataset& whole, const std::vector<InputSpec>& inputs, const SampleSet& kept)
    : whole_(whole), inputs_(inputs), kept_(kept) {
  MOTLEY_CHECK(kept.samples() == whole.samples());
  std::vector<std::int64_t> rows;
  for (std::size_t i = 0; i < inputs.size(); ++i) rows.push_back(whole.stored_bytes(i));
  const StoredTokens tokens = whole.stored_tokens();
  header_ = Json{{"schema", kExcerptSchema}, {"samples", kept.samples()},
                 {"kept", kept.count()},     {"inputs", inputs_to_json(inputs)},
                 {"row_bytes", rows},        {"token_width", tokens.width},
                 {"seq", tokens.seq}}
                .dump() +
            "\n";
  bytes_ = aligned(aligned(static_cast<std::int64_t>(header_.size())) + 8 * kept.count());
  for (const std::int64_t row : rows) bytes_ = aligned(bytes_ + kept.count() * row);
}

Result<void> Excerpt::write(const Sink& sink) const {
  Pieces pieces(sink);
  MOTLEY_ASSIGN(std::byte * at, pieces.add(header_.size()));
  std::memcpy(at, header_.data(), header_.size());
  MOTLEY_RETURN_IF_ERROR(pieces.align());
  const auto each_kept = [&](const auto& add) -> Result<void> {
    for (std::int64_t i = kept_.next(0); i < kept_.samples(); i = kept_.next(i + 1))
      MOTLEY_RETURN_IF_ERROR(add(i));
    return pieces.align();
  };
  MOTLEY_RETURN_IF_ERROR(each_kept([&](std::int64_t sample) -> Result<void> {
    MOTLEY_ASSIGN(at, pieces.add(sizeof sample));
    std::memcpy(at, &sample, sizeof sample);
    return {};
  }));
  for (std::size_t input = 0; input < inputs_.size(); ++input) {
    const auto row = static_cast<std::size_t>(whole_.stored_bytes(input));
    if (row == 0) continue;
    MOTLEY_RETURN_IF_ERROR(each_kept([&](std::int64_t sample) -> Result<void> {
      MOTLEY_ASSIGN(at, pieces.add(row));
      whole_.read_stored(input, sample, at);
      return {};
    }));
  }
  return pieces.flush();
}

Result<std::unique_ptr<Dataset>> open_excerpt(const std::string& path,
                                              const std::vector<InputSpec>& inputs) {
  MOTLEY_ASSIGN(MappedFile file, MappedFile::open(path));
  const std::string_view text = file.text();
  const std::size_t line = text.find('\n');
  const Json header =
      line == std::string_view::npos ? Json() : Json::parse(text.substr(0, line), nullptr, false);
  if (!header.is_object() || header.value("schema", "") != kExcerptSchema)
    return usage_error("data.excerpt", path + ": is no " + kExcerptSchema);
  if (header.value("inputs", Json()) != inputs_to_json(inputs))
    return usage_error("data.excerpt", fmt::format("{}: was made for inputs {}, the model's are {}",
                                                   path, header.value("inputs", Json()).dump(),
                                                   inputs_to_json(inputs).dump()));
  try {
    const StoredTokens tokens{header.at("token_width"), header.at("seq")};
    auto dataset = std::make_unique<ExcerptDataset>(std::move(file), tokens);
    const auto opened = dataset->open(header, static_cast<std::int64_t>(line) + 1, inputs);
    if (!opened) return with_context(path, opened.error());
    return dataset;
  } catch (const Json::exception& fault) {
    return usage_error("data.excerpt", fmt::format("{}: {}", path, fault.what()));
  }
}

}  // namespace motley::data

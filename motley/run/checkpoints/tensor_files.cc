#include "motley/run/checkpoints/tensor_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "motley/base/json.h"

namespace motley::run {
namespace {

using program::Part;
using Shape = std::vector<std::int64_t>;

constexpr const char* kKey = "motley.parts";

/// For shapes in memory or already checked.
std::int64_t elements(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

/// Returns the product of non-negative numbers from a file; empty on overflow.
std::optional<std::int64_t> product(const Shape& numbers) {
  std::int64_t count = 1;
  for (const std::int64_t number : numbers)
    if (__builtin_mul_overflow(count, number, &count)) return std::nullopt;
  return count;
}

std::string describe(DType dtype, const Shape& shape) {
  return fmt::format("{}[{}]", dtype_name(dtype), fmt::join(shape, ", "));
}

Part whole_part(std::int64_t count) { return {1, 0, 1, count}; }

bool is_same_view(const Part& a, const Part& b) {
  return a.before == b.before && a.extent == b.extent && a.after == b.after;
}

tl::unexpected<Error> misfit(const std::string& what) {
  return usage_error("run.tensor-parts", what);
}

Result<Shape> read_numbers(const Json& json, const std::string& where) {
  Shape numbers;
  for (const Json& number : json) {
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() > INT64_MAX)
      return misfit(where + ": wanted whole numbers of 0 or more");
    numbers.push_back(number.get<std::int64_t>());
  }
  return numbers;
}

Result<TensorPlace> read_place(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  TensorPlace place;
  MOTLEY_ASSIGN(const Json* shape, object.member("shape"));
  MOTLEY_ASSIGN(place.shape, read_numbers(*shape, where));
  MOTLEY_ASSIGN(const Json* part, object.member("part"));
  MOTLEY_ASSIGN(const Shape numbers, read_numbers(*part, where));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  if (numbers.size() != 4) return misfit(where + ": wanted before, begin, extent and after");
  place.part = {numbers[0], numbers[1], numbers[2], numbers[3]};
  return place;
}

/// Returns the places by tensor name; empty for a file without parts.
Result<std::map<std::string, TensorPlace>> read_places(const TensorFile& file) {
  std::map<std::string, TensorPlace> places;
  const auto found = file.tensors->metadata().find(kKey);
  if (found == file.tensors->metadata().end()) return places;
  const std::string where = fmt::format("{}: {}", file.path, kKey);
  MOTLEY_ASSIGN(const Json json, parse_json(found->second, where));
  if (!json.is_object()) return misfit(where + ": wanted an object");
  for (const auto& [name, entry] : json.items()) {
    MOTLEY_ASSIGN(TensorPlace place, read_place(entry, fmt::format("{}: '{}'", where, name)));
    places.emplace(name, std::move(place));
  }
  return places;
}

/// Returns the rows of `count` elements of `after` each; empty if not whole or out of range.
std::optional<std::int64_t> count_rows(const TensorPlace& place, const Shape& local) {
  const Part& part = place.part;
  const auto whole = product(place.shape);
  if (!whole || product({part.before, part.extent, part.after}) != whole ||
      local.size() != place.shape.size())
    return std::nullopt;
  if (*whole == 0) return 0;
  // Checked above to be at most `whole`: cannot overflow.
  const std::int64_t row = part.before * part.after, here = elements(local);
  if (here % row != 0 || part.begin > part.extent || here / row > part.extent - part.begin)
    return std::nullopt;
  return here / row;
}

}  // namespace

Result<void> write_tensor_file(const std::string& path, std::span<const SavedTensor> tensors,
                               std::map<std::string, std::string> metadata) {
  std::vector<NamedTensor> named;
  Json places = Json::object();
  for (const SavedTensor& tensor : tensors) {
    named.push_back(tensor.named);
    if (!tensor.place) continue;
    const Part& part = tensor.place->part;
    places[tensor.named.name] = {{"shape", tensor.place->shape},
                                 {"part", {part.before, part.begin, part.extent, part.after}}};
  }
  if (!places.empty()) metadata[kKey] = places.dump(-1, ' ', false, Json::error_handler_t::replace);
  return write_safetensors(path, named, metadata);
}

Result<TensorFiles> TensorFiles::make(std::span<const TensorFile> files, Extent extent) {
  TensorFiles all;
  for (const TensorFile& file : files) MOTLEY_RETURN_IF_ERROR(all.add(file));
  for (auto& [name, tensor] : all.tensors_) {
    const auto verified = verify(name, tensor);
    if (extent == Extent::kAll) MOTLEY_RETURN_IF_ERROR(verified);
  }
  return all;
}

Result<void> TensorFiles::add(const TensorFile& file) {
  MOTLEY_ASSIGN(const auto places, read_places(file));
  for (const auto& [name, view] : file.tensors->tensors()) {
    const auto place = places.find(name);
    Tensor part{view.dtype, view.shape, {{whole_part(elements(view.shape)), 1, view.bytes}}};
    if (place != places.end()) {
      const auto count = count_rows(place->second, view.shape);
      if (!count)
        return misfit(fmt::format("{}: tensor '{}' of {} is no part of {} as it says", file.path,
                                  name, describe(view.dtype, view.shape),
                                  describe(view.dtype, place->second.shape)));
      part.shape = place->second.shape;
      part.rows[0].part = place->second.part;
      part.rows[0].count = *count;
    }
    const auto [known, is_new] = tensors_.try_emplace(name, part);
    if (is_new) continue;
    Tensor& tensor = known->second;
    if (tensor.dtype != part.dtype || tensor.shape != part.shape ||
        !is_same_view(tensor.rows[0].part, part.rows[0].part))
      return misfit(
          fmt::format("{}: tensor '{}' is another one than in the files before", file.path, name));
    tensor.rows.push_back(part.rows[0]);
  }
  return {};
}

Result<void> TensorFiles::verify(const std::string& name, Tensor& tensor) {
  // Sorts empty parts before others at the same row: a device whose share is 0 keeps none.
  std::stable_sort(tensor.rows.begin(), tensor.rows.end(), [](const Rows& a, const Rows& b) {
    return std::pair(a.part.begin, a.count) < std::pair(b.part.begin, b.count);
  });
  std::int64_t at = 0;
  for (const Rows& rows : tensor.rows) {
    if (rows.count > 0 && rows.part.begin != at)
      return misfit(fmt::format("tensor '{}': its parts {} at row {} of {}", name,
                                rows.part.begin < at ? "overlap" : "leave a hole",
                                std::min(rows.part.begin, at), rows.part.extent));
    at += rows.count;
  }
  const std::int64_t extent = tensor.rows[0].part.extent;
  if (at == extent || elements(tensor.shape) == 0) return {};
  return misfit(fmt::format("tensor '{}': its parts have {} of {} rows", name, at, extent));
}

TensorFiles TensorFiles::with_others(const TensorFiles& others, const std::string& suffix,
                                     const std::map<std::string, std::string>& names) const {
  TensorFiles made = *this;
  for (auto& [name, tensor] : made.tensors_) {
    const auto called = names.find(name);
    const auto other =
        others.tensors_.find((called == names.end() ? name : called->second) + suffix);
    if (other != others.tensors_.end()) tensor = other->second;
  }
  return made;
}

std::vector<std::string> TensorFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

namespace {

/// Copies the rows that source and target have in common. Both view the tensor as [before, extent,
/// after]. `begin` counts rows; `width` is the bytes of `after`.
struct RowRange {
  std::int64_t begin = 0, count = 0;
};
void copy_common(const Part& view, std::int64_t width, RowRange from, const std::byte* source,
                 RowRange to, std::byte* target) {
  const std::int64_t first = std::max(from.begin, to.begin);
  const std::int64_t last = std::min(from.begin + from.count, to.begin + to.count);
  if (first >= last || width == 0) return;
  for (std::int64_t b = 0; b < view.before; ++b)
    std::memcpy(target + (b * to.count + first - to.begin) * width,
                source + (b * from.count + first - from.begin) * width,
                static_cast<std::size_t>((last - first) * width));
}

}  // namespace

void TensorFiles::copy(const Tensor& tensor, const Part& part, std::int64_t count,
                       std::byte* target) {
  const std::int64_t width = part.after * dtype_size(tensor.dtype);
  const RowRange wanted{part.begin, count};
  if (is_same_view(tensor.rows[0].part, part)) {
    for (const Rows& rows : tensor.rows)
      copy_common(part, width, {rows.part.begin, rows.count}, rows.bytes.data(), wanted, target);
    return;
  }
  // Cut along another dimension, as a new plan may do: copies from the whole tensor.
  std::vector<std::byte> whole;
  const std::byte* source = tensor.rows[0].bytes.data();
  if (tensor.rows.size() > 1) {
    whole = join(tensor);
    source = whole.data();
  }
  copy_common(part, width, {0, part.extent}, source, wanted, target);
}

std::vector<std::byte> TensorFiles::join(const Tensor& tensor) {
  std::vector<std::byte> whole(
      static_cast<std::size_t>(elements(tensor.shape) * dtype_size(tensor.dtype)));
  Part all = tensor.rows[0].part;
  all.begin = 0;
  if (!whole.empty()) copy(tensor, all, all.extent, whole.data());
  return whole;
}

/// Tells whether a tensor with some parts has these rows.
bool TensorFiles::has_rows(const Tensor& tensor, const Part& part, std::int64_t count) {
  const std::int64_t extent = tensor.rows[0].part.extent;
  std::int64_t all = 0, common = 0;
  for (const Rows& rows : tensor.rows) {
    all += rows.count;
    const std::int64_t first = std::max(rows.part.begin, part.begin);
    const std::int64_t last = std::min(rows.part.begin + rows.count, part.begin + count);
    common += std::max<std::int64_t>(0, last - first);
  }
  return all == extent || elements(tensor.shape) == 0 ||
         (is_same_view(tensor.rows[0].part, part) && common == count);
}

Result<void> TensorFiles::read(const program::Buffer& buffer, std::span<std::byte> target) const {
  const auto found = tensors_.find(buffer.name);
  if (found == tensors_.end())
    return usage_error("run.missing-tensor",
                       fmt::format("no tensor '{}' in the file, wanted {}", buffer.name,
                                   describe(buffer.dtype, buffer.shape)));
  const Tensor& tensor = found->second;
  const std::int64_t all = elements(tensor.shape);
  const Part part = buffer.part.value_or(whole_part(all));
  const auto count = count_rows({tensor.shape, part}, buffer.shape);
  if (tensor.dtype != buffer.dtype || !count || (!buffer.part && tensor.shape != buffer.shape))
    return usage_error(
        "run.wrong-tensor",
        fmt::format("tensor '{}': found {}, wanted {}{}", buffer.name,
                    describe(tensor.dtype, tensor.shape), buffer.part ? "one of a part of " : "",
                    describe(buffer.dtype, buffer.shape)));
  if (!has_rows(tensor, part, *count))
    return usage_error("run.missing-tensor",
                       fmt::format("tensor '{}': the file has other parts of it than rows {} to {}",
                                   buffer.name, part.begin, part.begin + *count));
  if (!target.empty()) copy(tensor, part, *count, target.data());
  return {};
}

TensorView TensorFiles::view(const std::string& name) const {
  const Tensor& tensor = tensors_.at(name);
  if (tensor.rows.size() > 1) return {tensor.dtype, tensor.shape, {}};
  return {tensor.dtype, tensor.shape, tensor.rows[0].bytes};
}

TensorView TensorFiles::whole(const std::string& name, std::vector<std::byte>& joined) const {
  TensorView made = view(name);
  const Tensor& tensor = tensors_.at(name);
  if (tensor.rows.size() > 1) {
    joined = join(tensor);
    made.bytes = joined;
  }
  return made;
}

Result<void> TensorFiles::write_whole(const std::string& path,
                                      std::span<const std::string> names) const {
  std::vector<std::vector<std::byte>> joined(names.size());
  std::vector<NamedTensor> named;
  for (std::size_t i = 0; i < names.size(); ++i)
    named.push_back({names[i], whole(names[i], joined[i])});
  return write_safetensors(path, named, {});
}

bool TensorFiles::are_equal(const std::string& one, const std::string& other) const {
  const Tensor &a = tensors_.at(one), &b = tensors_.at(other);
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  std::vector<std::byte> joined_one, joined_other;
  const auto first = whole(one, joined_one).bytes, second = whole(other, joined_other).bytes;
  return std::equal(first.begin(), first.end(), second.begin(), second.end());
}

}  // namespace motley::run

#include "motley/base/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "motley/base/check.h"
#include "motley/base/json.h"

namespace motley {
namespace {

// The format's own limit. A greater length means that this is no such file.
constexpr std::uint64_t kMaxHeader = 100'000'000;

struct DTypeName {
  DType dtype;
  std::string_view name;
};
constexpr std::array<DTypeName, 10> kNames = {{{DType::kF64, "F64"},
                                               {DType::kF32, "F32"},
                                               {DType::kF16, "F16"},
                                               {DType::kBF16, "BF16"},
                                               {DType::kI64, "I64"},
                                               {DType::kI32, "I32"},
                                               {DType::kI16, "I16"},
                                               {DType::kI8, "I8"},
                                               {DType::kU8, "U8"},
                                               {DType::kBool, "BOOL"}}};

tl::unexpected<Error> corrupt(const std::string& where, const std::string& message) {
  return usage_error("safetensors.corrupt", where + ": " + message);
}

/// Returns the bytes of a tensor of `shape`; empty on overflow.
std::optional<std::uint64_t> byte_count(DType dtype, const std::vector<std::int64_t>& shape) {
  // Sizes come from the file: a wrapped product could equal a small number of bytes.
  auto count = static_cast<std::uint64_t>(dtype_size(dtype));
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(size), &count))
      return std::nullopt;
  }
  return count;
}

Result<std::vector<std::int64_t>> read_sizes(const SortedJson& entry, const char* key,
                                             const std::string& where) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) {
    return corrupt(where, fmt::format("wanted a list '{}'", key));
  }
  std::vector<std::int64_t> sizes;
  sizes.reserve(found->size());
  for (const SortedJson& size : *found) {
    // The library stores a negative number as a signed integer, so this refuses it too.
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() > INT64_MAX) {
      return corrupt(where, fmt::format("'{}' must hold non-negative integers", key));
    }
    sizes.push_back(static_cast<std::int64_t>(size.get<std::uint64_t>()));
  }
  return sizes;
}

Result<TensorView> read_tensor(const SortedJson& entry, std::span<const std::byte> bytes,
                               const std::string& where) {
  if (!entry.is_object()) return corrupt(where, "wanted an object");
  TensorView tensor;
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) return corrupt(where, "wanted a string 'dtype'");
  const auto& name = dtype->get_ref<const std::string&>();
  const auto* row = std::find_if(kNames.begin(), kNames.end(), [&](const DTypeName& candidate) {
    return candidate.name == name;
  });
  if (row == kNames.end()) return corrupt(where, fmt::format("unsupported dtype '{}'", name));
  tensor.dtype = row->dtype;
  MOTLEY_ASSIGN(tensor.shape, read_sizes(entry, "shape", where));
  MOTLEY_ASSIGN(const auto offsets, read_sizes(entry, "data_offsets", where));
  if (offsets.size() != 2 || offsets[0] > offsets[1] ||
      static_cast<std::uint64_t>(offsets[1]) > bytes.size()) {
    return corrupt(where, fmt::format("'data_offsets' {} do not lie in the {} bytes of data",
                                      SortedJson(offsets).dump(), bytes.size()));
  }
  const auto length = static_cast<std::uint64_t>(offsets[1] - offsets[0]);
  if (byte_count(tensor.dtype, tensor.shape) != length) {
    return corrupt(where, fmt::format("{} bytes do not fit dtype {} and shape {}", length, name,
                                      SortedJson(tensor.shape).dump()));
  }
  tensor.bytes = bytes.subspan(static_cast<std::size_t>(offsets[0]), length);
  return tensor;
}

Result<std::map<std::string, std::string>> read_metadata(const SortedJson& json,
                                                         const std::string& name) {
  if (!json.is_object()) return corrupt(name, "'__metadata__' must be an object of strings");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return corrupt(name, "'__metadata__' must be an object of strings");
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

/// Verifies that tensors cover the data without holes or overlap. The format demands it, against
/// files that hide bytes for another reader or share them between tensors.
Result<void> verify_cover(const std::map<std::string, TensorView>& tensors,
                          std::span<const std::byte> data, const std::string& name) {
  std::vector<std::pair<const std::byte*, const std::byte*>> pieces;
  pieces.reserve(tensors.size());
  for (const auto& [key, tensor] : tensors) {
    pieces.emplace_back(tensor.bytes.data(), tensor.bytes.data() + tensor.bytes.size());
  }
  std::sort(pieces.begin(), pieces.end());
  const std::byte* at = data.data();
  for (const auto& [begin, end] : pieces) {
    if (begin < at)
      return corrupt(name,
                     fmt::format("tensors overlap at byte {} of the data", begin - data.data()));
    if (begin > at)
      return corrupt(name, fmt::format("hole at byte {} of the data", at - data.data()));
    at = end;
  }
  if (at != data.data() + data.size()) {
    return corrupt(name,
                   fmt::format("{} bytes after the last tensor", data.data() + data.size() - at));
  }
  return {};
}

std::string_view file_dtype(DType dtype) {
  for (const DTypeName& row : kNames) {
    if (row.dtype == dtype) return row.name;
  }
  return {};
}

/// Makes the header of a file with `tensors` in this order: length, JSON, padding.
Result<std::string> make_header(std::span<const NamedTensor* const> tensors,
                                const std::map<std::string, std::string>& metadata,
                                const std::string& path) {
  Json header = Json::object();
  Json& all_metadata = header["__metadata__"] = Json::object();
  // Other readers (transformers) refuse a file without it.
  all_metadata["format"] = "pt";
  for (const auto& [key, value] : metadata) all_metadata[key] = value;
  // Appended as text: the ordered object searches for an equal key at each insertion.
  std::string text;
  std::uint64_t offset = 0;
  try {
    text = header.dump();
    text.pop_back();
    for (const NamedTensor* named : tensors) {
      const TensorView& tensor = named->tensor;
      MOTLEY_CHECK(tensor.dtype != DType::kNone && named->name != "__metadata__");
      MOTLEY_CHECK(byte_count(tensor.dtype, tensor.shape) == tensor.bytes.size());
      const std::uint64_t end = offset + tensor.bytes.size();
      text += fmt::format(R"(,{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                          Json(named->name).dump(), file_dtype(tensor.dtype),
                          Json(tensor.shape).dump(), offset, end);
      offset = end;
    }
  } catch (const Json::exception&) {
    return usage_error("safetensors.text", path + ": a tensor name or metadata text is not UTF-8");
  }
  text += '}';
  // Data begins at a multiple of 8, so that mapped tensors are aligned for every element type.
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaxHeader) {
    return usage_error("safetensors.header", fmt::format("{}: header of {} bytes, at most {}", path,
                                                         text.size(), kMaxHeader));
  }
  std::string length(8, '\0');
  const std::uint64_t size = text.size();
  // Little-endian on every machine.
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(size >> (8 * i) & 0xFF);
  return length + text;
}

}  // namespace

Result<Safetensors> Safetensors::open(const std::string& path) {
  MOTLEY_ASSIGN(MappedFile mapped, MappedFile::open(path));
  MOTLEY_ASSIGN(Safetensors file, parse(mapped.bytes(), path));
  file.file_.push_back(std::move(mapped));
  return file;
}

Result<Safetensors> Safetensors::parse(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.size() < 8)
    return corrupt(name, fmt::format("{} bytes, too short for a safetensors file", bytes.size()));
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i) length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  if (length > kMaxHeader) {
    return corrupt(name, fmt::format("header of {} bytes, at most {}: not a safetensors file",
                                     length, kMaxHeader));
  }
  if (length > bytes.size() - 8) {
    return corrupt(
        name, fmt::format("truncated: header of {} bytes in a file of {}", length, bytes.size()));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  if (!text.starts_with('{')) return corrupt(name, "header does not start with '{'");
  MOTLEY_ASSIGN(const SortedJson header, parse_sorted_json(text, name + ": header"));
  const auto data = bytes.subspan(8 + length);
  Safetensors file;
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") {
      MOTLEY_ASSIGN(file.metadata_, read_metadata(entry, name));
      continue;
    }
    MOTLEY_ASSIGN(TensorView tensor,
                  read_tensor(entry, data, fmt::format("{}: tensor '{}'", name, key)));
    file.tensors_.emplace(key, std::move(tensor));
  }
  MOTLEY_RETURN_IF_ERROR(verify_cover(file.tensors_, data, name));
  return file;
}

Result<void> write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::vector<const NamedTensor*> order;
  order.reserve(tensors.size());
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  // Wide elements first, then by name: tensors are aligned, and equal contents give equal bytes.
  const auto key = [](const NamedTensor* named) {
    return std::pair<std::int64_t, const std::string&>(-dtype_size(named->tensor.dtype),
                                                       named->name);
  };
  std::sort(order.begin(), order.end(),
            [&](const NamedTensor* a, const NamedTensor* b) { return key(a) < key(b); });
  MOTLEY_ASSIGN(const std::string header, make_header(order, metadata, path));
  MOTLEY_ASSIGN(AtomicFile file, AtomicFile::create(path));
  MOTLEY_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(header))));
  for (const NamedTensor* named : order) MOTLEY_RETURN_IF_ERROR(file.write(named->tensor.bytes));
  return file.commit();
}

}  // namespace motley

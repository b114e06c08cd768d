#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "motley/base/text.h"
#include "motley/data/npz.h"

namespace motley::data {
namespace {

tl::unexpected<Error> broken_npy(const std::string& name, const std::string& message) {
  return usage_error("data.npy", fmt::format("{}: {}", name, message));
}

struct Header {
  std::string descr;
  bool is_fortran = false;
  std::vector<std::int64_t> shape;
};

/// Reads the header, a Python dictionary of three known keys:
/// {'descr': '<f4', 'fortran_order': False, 'shape': (100, 28), }
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Result<Header> read() {
    Header header;
    std::vector<std::string> seen;
    if (!accept('{')) return fail("wanted '{'");
    while (!accept('}')) {
      MOTLEY_ASSIGN(const std::string key, string());
      if (!accept(':')) return fail("wanted ':'");
      MOTLEY_RETURN_IF_ERROR(read_member(key, header));
      seen.push_back(key);
      if (!accept(',') && peek() != '}') return fail("wanted ',' or '}'");
    }
    std::sort(seen.begin(), seen.end());
    if (seen != std::vector<std::string>{"descr", "fortran_order", "shape"}) {
      return fail("wanted the keys descr, fortran_order and shape");
    }
    return header;
  }

 private:
  Result<void> read_member(const std::string& key, Header& header) {
    if (key == "descr") {
      // A list of fields. Named, because it is what people get when they save a table.
      if (peek() == '[') {
        return broken_npy(name_, "a structured array, wanted one array for each input");
      }
      MOTLEY_ASSIGN(header.descr, string());
    } else if (key == "fortran_order") {
      header.is_fortran = accept_word("True");
      if (!header.is_fortran && !accept_word("False")) return fail("wanted True or False");
    } else if (key == "shape") {
      MOTLEY_ASSIGN(header.shape, shape());
    } else {
      return fail(fmt::format("unknown key '{}'", key));
    }
    return {};
  }

  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool accept(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }

  bool accept_word(std::string_view word) {
    peek();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Result<std::string> string() {
    const char mark = peek();
    if (mark != '\'' && mark != '"') return fail("wanted a text in quotes");
    const std::size_t end = text_.find(mark, at_ + 1);
    if (end == std::string_view::npos) return fail("a text without end");
    const std::string value(text_.substr(at_ + 1, end - at_ - 1));
    // Refuses escapes: keys and type codes need none, and NumPy writes none.
    const bool is_plain = std::all_of(value.begin(), value.end(),
                                      [](char c) { return c >= ' ' && c <= '~' && c != '\\'; });
    if (!is_plain) return fail("a text that is not plain ASCII");
    at_ = end + 1;
    return value;
  }

  Result<std::vector<std::int64_t>> shape() {
    if (!accept('(')) return fail("wanted '('");
    std::vector<std::int64_t> sizes;
    while (!accept(')')) {
      peek();
      const std::size_t end = text_.find_first_not_of("0123456789", at_);
      const auto size = find_integer(text_.substr(at_, end - at_));
      if (end == std::string_view::npos || !size) return fail("wanted a size");
      sizes.push_back(*size);
      at_ = end;
      if (!accept(',') && peek() != ')') return fail("wanted ',' or ')'");
    }
    return sizes;
  }

  tl::unexpected<Error> fail(const std::string& message) const {
    return broken_npy(name_,
                      fmt::format("broken header of a .npy array at byte {}: {}", at_, message));
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

Result<DType> parse_descr(const std::string& descr, const std::string& name) {
  constexpr std::array<std::pair<std::string_view, DType>, 9> kKinds = {{{"f8", DType::kF64},
                                                                         {"f4", DType::kF32},
                                                                         {"f2", DType::kF16},
                                                                         {"i8", DType::kI64},
                                                                         {"i4", DType::kI32},
                                                                         {"i2", DType::kI16},
                                                                         {"i1", DType::kI8},
                                                                         {"u1", DType::kU8},
                                                                         {"b1", DType::kBool}}};
  const bool has_order =
      !descr.empty() && std::string_view("<>|=").find(descr[0]) != std::string_view::npos;
  const std::string_view kind = std::string_view(descr).substr(has_order ? 1 : 0);
  for (const auto& [known, dtype] : kKinds) {
    if (kind != known) continue;
    if (has_order && descr[0] == '>' && dtype_size(dtype) > 1) {
      return broken_npy(
          name, fmt::format("big-endian numbers ('{}'); save array.astype('<{}')", descr, kind));
    }
    return dtype;
  }
  return broken_npy(
      name, fmt::format("numpy type '{}', wanted one of f8 f4 f2 i8 i4 i2 i1 u1 b1", descr));
}

std::optional<std::uint64_t> byte_count(DType dtype, const std::vector<std::int64_t>& shape) {
  auto count = static_cast<std::uint64_t>(dtype_size(dtype));
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(size), &count)) {
      return std::nullopt;
    }
  }
  return count;
}

std::uint8_t byte_at(std::span<const std::byte> bytes, std::size_t at) {
  return std::to_integer<std::uint8_t>(bytes[at]);
}

}  // namespace

Result<TensorView> parse_npy(std::span<const std::byte> bytes, const std::string& name) {
  constexpr std::string_view kMagic("\x93NUMPY", 6);
  if (bytes.size() < 12 || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return broken_npy(name, "not a .npy array");
  }
  const int version = byte_at(bytes, 6);
  if (version < 1 || version > 3) {
    return broken_npy(name, fmt::format(".npy version {}, wanted 1 to 3", version));
  }
  const std::size_t start = version == 1 ? 10 : 12;
  std::size_t length = 0;
  for (std::size_t i = start; i-- > 8;) length = length << 8 | byte_at(bytes, i);
  if (length > bytes.size() - start) {
    return broken_npy(name,
                      fmt::format("truncated: a header of {} bytes in {}", length, bytes.size()));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + start, length);
  MOTLEY_ASSIGN(const Header header, HeaderReader(text, name).read());
  TensorView view;
  MOTLEY_ASSIGN(view.dtype, parse_descr(header.descr, name));
  view.shape = header.shape;
  if (header.is_fortran && view.shape.size() > 1) {
    return broken_npy(name, "Fortran order; save numpy.ascontiguousarray(array)");
  }
  view.bytes = bytes.subspan(start + length);
  const auto wanted = byte_count(view.dtype, view.shape);
  if (wanted != view.bytes.size()) {
    return broken_npy(
        name,
        fmt::format("{} bytes of data, wanted {} for {}[{}]; is it truncated?", view.bytes.size(),
                    wanted ? fmt::format("{}", *wanted) : "more than there can be",
                    dtype_name(view.dtype), fmt::join(view.shape, ", ")));
  }
  return view;
}

}  // namespace motley::data

#include "motley/data/npz.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "motley/base/check.h"

namespace motley::data {
namespace {

constexpr std::uint16_t kStored = 0, kDeflated = 8;
constexpr std::uint32_t kNoSize = 0xffffffff;  // "see the zip64 field"
// Deflate turns at most 1032 bytes into one.
constexpr std::uint64_t kMaxRatio = 1032;

tl::unexpected<Error> broken_npz(const std::string& name, const std::string& message) {
  return usage_error("data.npz", fmt::format("{}: {}", name, message));
}

// Reads a little-endian number; the caller has checked the bounds.
template <typename Number>
Number load(std::span<const std::byte> bytes, std::size_t at) {
  MOTLEY_CHECK(at <= bytes.size() && sizeof(Number) <= bytes.size() - at);
  Number value = 0;
  for (std::size_t i = sizeof(Number); i-- > 0;) {
    value = static_cast<Number>(static_cast<std::uint64_t>(value) << 8 |
                                std::to_integer<std::uint64_t>(bytes[at + i]));
  }
  return value;
}

// Returns `count` bytes from `at`; empty if they are not all inside.
std::optional<std::span<const std::byte>> part(std::span<const std::byte> bytes, std::uint64_t at,
                                               std::uint64_t count) {
  if (at > bytes.size() || count > bytes.size() - at) return std::nullopt;
  return bytes.subspan(at, count);
}

std::uint32_t checksum_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// Inflates raw deflate data into `to`. Returns the bytes; empty if corrupt or too long.
std::optional<std::uint64_t> inflate_all(std::span<const std::byte> from, std::span<std::byte> to) {
  constexpr std::size_t kPiece = std::size_t{1} << 30;  // zlib counts in 32 bits
  z_stream stream{};
  MOTLEY_CHECK(inflateInit2(&stream, -MAX_WBITS) == Z_OK);
  std::size_t taken = 0, made = 0;
  int status = Z_OK;
  while (status == Z_OK) {
    const std::size_t in = std::min(kPiece, from.size() - taken);
    const std::size_t out = std::min(kPiece, to.size() - made);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(from.data() + taken));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(to.data() + made);
    stream.avail_out = static_cast<uInt>(out);
    status = inflate(&stream, Z_NO_FLUSH);
    taken += in - stream.avail_in;
    made += out - stream.avail_out;
  }
  inflateEnd(&stream);
  if (status != Z_STREAM_END) return std::nullopt;
  return made;
}

std::string quoted_name(const std::string& file, std::string_view array) {
  return fmt::format("{}: array '{}'", file, array);
}

}  // namespace

/// Reads the directory at the end of a zip archive.
class ZipDirectory {
 public:
  explicit ZipDirectory(Npz& npz) : npz_(npz), bytes_(npz.bytes_) {}

  Result<void> read() {
    MOTLEY_RETURN_IF_ERROR(find_end());
    const auto directory = part(bytes_, offset_, size_);
    if (!directory) {
      return broken_npz(npz_.name_, "the directory lies outside the file; is it truncated?");
    }
    std::span<const std::byte> rest = *directory;
    for (std::uint64_t i = 0; i < count_; ++i) {
      MOTLEY_ASSIGN(const std::size_t used, read_entry(rest));
      rest = rest.subspan(used);
    }
    return {};
  }

 private:
  static constexpr std::size_t kEndSize = 22, kLocatorSize = 20, kEnd64Size = 56, kEntrySize = 46;

  // Finds the end record, which precedes only a comment of at most 64 KiB.
  Result<void> find_end() {
    constexpr std::size_t kMaxComment = 0xffff;
    for (std::size_t back = kEndSize; back <= std::min(bytes_.size(), kEndSize + kMaxComment);
         ++back) {
      const std::size_t at = bytes_.size() - back;
      if (load<std::uint32_t>(bytes_, at) != 0x06054b50) continue;
      if (load<std::uint16_t>(bytes_, at + 20) != back - kEndSize) continue;
      count_ = load<std::uint16_t>(bytes_, at + 10);
      size_ = load<std::uint32_t>(bytes_, at + 12);
      offset_ = load<std::uint32_t>(bytes_, at + 16);
      MOTLEY_RETURN_IF_ERROR(read_end_64(at));
      return {};
    }
    return broken_npz(npz_.name_,
                      "not a .npz file (no zip directory at its end); is it truncated?");
  }

  // Beyond 4 GiB or 65535 members a second end record and a locator precede the first.
  Result<void> read_end_64(std::size_t end) {
    if (end < kLocatorSize) return {};
    const std::size_t locator = end - kLocatorSize;
    if (load<std::uint32_t>(bytes_, locator) != 0x07064b50) return {};
    const auto record = part(bytes_, load<std::uint64_t>(bytes_, locator + 8), kEnd64Size);
    if (!record || load<std::uint32_t>(*record, 0) != 0x06064b50) {
      return broken_npz(npz_.name_, "broken zip64 directory");
    }
    count_ = load<std::uint64_t>(*record, 32);
    size_ = load<std::uint64_t>(*record, 40);
    offset_ = load<std::uint64_t>(*record, 48);
    return {};
  }

  Result<std::size_t> read_entry(std::span<const std::byte> rest) {
    if (rest.size() < kEntrySize || load<std::uint32_t>(rest, 0) != 0x02014b50) {
      return broken_npz(npz_.name_, "broken zip directory");
    }
    Npz::Member member;
    member.flags = load<std::uint16_t>(rest, 8);
    member.method = load<std::uint16_t>(rest, 10);
    member.checksum = load<std::uint32_t>(rest, 16);
    member.stored_size = load<std::uint32_t>(rest, 20);
    member.size = load<std::uint32_t>(rest, 24);
    const std::size_t name_size = load<std::uint16_t>(rest, 28);
    const std::size_t extra_size = load<std::uint16_t>(rest, 30);
    const std::size_t used = kEntrySize + name_size + extra_size + load<std::uint16_t>(rest, 32);
    member.offset = load<std::uint32_t>(rest, 42);
    if (used > rest.size()) return broken_npz(npz_.name_, "broken zip directory");
    MOTLEY_RETURN_IF_ERROR(read_extra(rest.subspan(kEntrySize + name_size, extra_size), member));
    const std::string_view name(reinterpret_cast<const char*>(rest.data()) + kEntrySize, name_size);
    MOTLEY_RETURN_IF_ERROR(add(name, member));
    return used;
  }

  // The zip64 field holds, in this order, those of size, stored size and offset that do not fit.
  Result<void> read_extra(std::span<const std::byte> extra, Npz::Member& member) const {
    while (extra.size() >= 4) {
      const std::size_t length = load<std::uint16_t>(extra, 2);
      if (length > extra.size() - 4) break;
      if (load<std::uint16_t>(extra, 0) == 1) {
        const std::span<const std::byte> field = extra.subspan(4, length);
        std::size_t at = 0;
        for (std::uint64_t* number : {&member.size, &member.stored_size, &member.offset}) {
          if (*number != kNoSize) continue;
          if (at + 8 > field.size()) return broken_npz(npz_.name_, "broken zip64 field");
          *number = load<std::uint64_t>(field, at);
          at += 8;
        }
      }
      extra = extra.subspan(4 + length);
    }
    return {};
  }

  Result<void> add(std::string_view name, const Npz::Member& member) {
    if (!name.ends_with(".npy")) return {};
    name.remove_suffix(4);
    const bool is_plain = std::all_of(name.begin(), name.end(),
                                      [](unsigned char c) { return c >= ' ' && c != 0x7f; });
    if (!is_plain) return broken_npz(npz_.name_, "an array's name holds control characters");
    if (!npz_.members_.emplace(name, member).second) {
      return broken_npz(npz_.name_, fmt::format("two arrays named '{}'", name));
    }
    return {};
  }

  Npz& npz_;
  std::span<const std::byte> bytes_;
  std::uint64_t count_ = 0, size_ = 0, offset_ = 0;
};

Result<Npz> Npz::open(const std::string& path) {
  MOTLEY_ASSIGN(MappedFile file, MappedFile::open(path));
  MOTLEY_ASSIGN(Npz npz, parse(file.bytes(), path));
  npz.file_.push_back(std::move(file));
  return npz;
}

Result<Npz> Npz::parse(std::span<const std::byte> bytes, const std::string& name) {
  Npz npz;
  npz.name_ = name;
  npz.bytes_ = bytes;
  MOTLEY_RETURN_IF_ERROR(ZipDirectory(npz).read());
  return npz;
}

std::vector<std::string> Npz::names() const {
  std::vector<std::string> names;
  for (const auto& [name, member] : members_) names.push_back(name);
  return names;
}

Result<TensorView> Npz::array(std::string_view name) {
  const auto found = members_.find(name);
  MOTLEY_CHECK(found != members_.end());
  const auto kept = inflated_.find(name);
  const std::string where = quoted_name(name_, name);
  if (kept != inflated_.end()) return parse_npy({kept->second.get(), found->second.size}, where);
  MOTLEY_ASSIGN(const auto bytes, contents(found->first, found->second));
  return parse_npy(bytes, where);
}

Result<std::span<const std::byte>> Npz::contents(const std::string& name, const Member& member) {
  const std::string where = quoted_name(name_, name);
  if ((member.flags & 1) != 0) return broken_npz(where, "is encrypted");
  const auto local = part(bytes_, member.offset, 30);
  if (!local || load<std::uint32_t>(*local, 0) != 0x04034b50) {
    return broken_npz(where, "does not start where the directory says; is the file truncated?");
  }
  const std::uint64_t start = member.offset + 30 + load<std::uint16_t>(*local, 26) +
                              std::uint64_t{load<std::uint16_t>(*local, 28)};
  const auto stored = part(bytes_, start, member.stored_size);
  if (!stored) return broken_npz(where, "ends beyond the file; is it truncated?");
  if (member.method == kDeflated) return inflated(name, member, *stored);
  if (member.method != kStored) {
    return broken_npz(where, fmt::format("zip compression {}, wanted stored or deflated; save with "
                                         "numpy.savez or numpy.savez_compressed",
                                         member.method));
  }
  if (member.size != member.stored_size) return broken_npz(where, "two sizes that differ");
  if (member.size <= kCheckedBytes && checksum_of(*stored) != member.checksum) {
    return broken_npz(where, "its checksum does not match: the file is corrupt");
  }
  return *stored;
}

Result<std::span<const std::byte>> Npz::inflated(const std::string& name, const Member& member,
                                                 std::span<const std::byte> stored) {
  const std::string where = quoted_name(name_, name);
  if (member.size / kMaxRatio > member.stored_size) {
    return broken_npz(where, fmt::format("{} bytes cannot come from {} deflated ones", member.size,
                                         member.stored_size));
  }
  // One byte more than expected, so that longer data is detected.
  std::unique_ptr<std::byte[]> buffer(new (std::nothrow) std::byte[member.size + 1]);
  if (buffer == nullptr)
    return broken_npz(where, fmt::format("no memory for {} bytes", member.size));
  if (inflate_all(stored, {buffer.get(), member.size + 1}) != member.size) {
    return broken_npz(where, "its deflated data are corrupt");
  }
  const std::span<const std::byte> bytes(buffer.get(), member.size);
  if (checksum_of(bytes) != member.checksum) {
    return broken_npz(where, "its checksum does not match: the file is corrupt");
  }
  inflated_.emplace(name, std::move(buffer));
  return bytes;
}

}  // namespace motley::data

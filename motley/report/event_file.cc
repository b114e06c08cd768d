#include "motley/report/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace motley::report {
namespace {

/// CRC-32C (Castagnoli), reflected polynomial 0x82F63B78.
constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78U : 0U);
    table[byte] = crc;
  }
  return table;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  static constexpr auto kTable = make_crc_table();
  std::uint32_t crc = ~0U;
  for (const char byte : bytes)
    crc = kTable[(crc ^ static_cast<std::uint8_t>(byte)) & 0xFF] ^ (crc >> 8);
  // TFRecord masks its checksums: a checksum over data that contains its own checksum is useless.
  return std::rotr(~crc, 15) + 0xA282EAD8U;
}

template <typename T>
void append_raw(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// Protocol buffer wire types.
enum Wire { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };
void append_key(std::string& out, int field, Wire wire) {
  append_varint(out, static_cast<std::uint64_t>(field) << 3 | wire);
}
void append_bytes(std::string& out, int field, std::string_view bytes) {
  append_key(out, field, kLength);
  append_varint(out, bytes.size());
  out.append(bytes);
}

/// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
std::string event_head(double wall_time, std::int64_t step) {
  std::string event;
  append_key(event, 1, kFixed64);
  append_raw(event, wall_time);
  append_key(event, 2, kVarint);
  append_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

/// TFRecord: length, its checksum, payload, its checksum.
std::string record(std::string_view payload) {
  std::string length;
  append_raw(length, static_cast<std::uint64_t>(payload.size()));
  std::string out = length;
  append_raw(out, masked_crc32c(length));
  out.append(payload);
  append_raw(out, masked_crc32c(payload));
  return out;
}

Result<void> write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0)
      return runtime_error("report.event-file", fmt::format("cannot write TensorBoard events: {}",
                                                            std::strerror(errno)));
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace

Result<EventFile> EventFile::create(const std::string& directory, double wall_time) {
  std::error_code code;
  std::filesystem::create_directories(directory, code);
  const std::string path =
      fmt::format("{}/events.out.tfevents.{:010d}.motley.{}", directory,
                  static_cast<std::int64_t>(wall_time), static_cast<int>(::getpid()));
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    return runtime_error("report.event-file",
                         fmt::format("{}: cannot create: {}", path, std::strerror(errno)));
  EventFile file(fd);
  std::string event = event_head(wall_time, 0);
  // Without this first record TensorBoard reads the file as an older version.
  append_bytes(event, 3, "brain.Event:2");
  MOTLEY_RETURN_IF_ERROR(write_all(fd, record(event)));
  return file;
}

EventFile::EventFile(EventFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
EventFile& EventFile::operator=(EventFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
EventFile::~EventFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> EventFile::write(std::int64_t step, double wall_time,
                              const std::vector<Scalar>& scalars) {
  std::string
      // Summary { repeated Value value = 1; } Value { tag = 1; simple_value = 2; }
      summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    append_bytes(value, 1, scalar.tag);
    append_key(value, 2, kFixed32);
    append_raw(value, static_cast<float>(scalar.value));
    append_bytes(summary, 1, value);
  }
  std::string event = event_head(wall_time, step);
  append_bytes(event, 5, summary);
  return write_all(fd_, record(event));
}

}  // namespace motley::report

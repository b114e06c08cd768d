#include "motley/run/hosts/arrival.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace motley::run {

namespace fs = std::filesystem;

void Arrival::take(const Frame& frame) {
  const std::string is = frame.head.value("is", "");
  bytes_ += static_cast<std::int64_t>(frame.bytes.size());
  if (is == "fetched" || is == "failed") is_over_ = true;
  if (is == "failed" && outcome_)
    outcome_ =
        runtime_error(frame.head.value("code", "host.fetch"), frame.head.value("message", ""));
  if (!is_over_ && outcome_) outcome_ = write(frame);
}

Result<void> Arrival::write(const Frame& frame) {
  const fs::path path = place(frame.head.value("path", ""));
  std::error_code code;
  if (!stream_.is_open()) fs::create_directories(path.parent_path(), code);
  if (frame.head.value("is", "") == "link") return make_link(path, frame.head.value("target", ""));
  if (!stream_.is_open()) {
    fs::remove(path, code);  // keeps the content under its other hard links
    stream_.open(path, std::ios::binary | std::ios::trunc);
  }
  stream_.write(frame.bytes.data(), static_cast<std::streamsize>(frame.bytes.size()));
  const bool is_end = frame.head.value("end", true);
  if (is_end) stream_.close();
  if (stream_.fail())
    return runtime_error("host.fetch", fmt::format("{}: cannot be written: {}", path.string(),
                                                   std::strerror(errno)));
  if (is_end) {
    stream_ = std::ofstream();
    ++files_;
  }
  return {};
}

Result<void> Arrival::make_link(const fs::path& path, const std::string& target) {
  std::error_code code;
  fs::remove(path, code);
  fs::create_symlink(target, path, code);
  if (code) return runtime_error("host.fetch", path.string() + ": " + code.message());
  ++files_;
  return {};
}

/// Maps a path into the folder, never outside of it, whatever the host sends.
fs::path Arrival::place(const std::string& path) const {
  const fs::path inside = fs::path(path).lexically_normal().lexically_relative(root_);
  const bool is_inside = !inside.empty() && *inside.begin() != ".." && inside != ".";
  return is_inside ? fs::path(into_) / inside : fs::path(into_) / fs::path(path).filename();
}

}  // namespace motley::run

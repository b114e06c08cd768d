#include "motley/run/hosts/outgoing_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace motley::run {
namespace {

namespace fs = std::filesystem;
// bytes; small, because other messages wait behind it.
constexpr std::size_t kFilePiece = std::size_t{256} << 10;

}  // namespace

OutgoingFiles::OutgoingFiles(const Places& places, Json number)
    : number_(std::move(number)), aside_(places.aside) {
  std::error_code code;
  fs::create_directories(aside_, code);
  std::vector<fs::path> paths;
  if (fs::is_symlink(places.root, code) || fs::is_regular_file(places.root, code))
    paths.push_back(places.root);
  else if (fs::is_directory(places.root, code))
    for (const auto& each : fs::recursive_directory_iterator(places.root, code))
      paths.push_back(each.path());
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) add(path, places);
}

OutgoingFiles::OutgoingFiles(OutgoingFiles&& other) noexcept
    : number_(std::move(other.number_)),
      aside_(std::exchange(other.aside_, {})),
      entries_(std::move(other.entries_)),
      at_(other.at_),
      stream_(std::move(other.stream_)),
      is_over_(other.is_over_) {}

OutgoingFiles::~OutgoingFiles() {
  std::error_code code;
  if (!aside_.empty()) fs::remove_all(aside_, code);
}

void OutgoingFiles::add(const fs::path& path, const Places& places) {
  std::error_code code;
  Entry entry{path, path.lexically_relative(places.base).string(), ""};
  if (fs::is_symlink(path, code)) {
    entry.target = fs::read_symlink(path, code).string();
  } else if (fs::is_regular_file(path, code)) {
    const fs::path kept = aside_ / std::to_string(entries_.size());
    fs::create_hard_link(path, kept, code);
    if (!code) entry.path = kept;  // else, without hard links, readable only while it exists
  } else {
    return;
  }
  entries_.push_back(std::move(entry));
}

std::optional<Frame> OutgoingFiles::next() {
  if (is_over_) return std::nullopt;
  if (at_ < entries_.size()) return piece(entries_[at_]);
  is_over_ = true;
  return Frame{{{"is", "fetched"}, {"number", number_}}, ""};
}

Frame OutgoingFiles::piece(const Entry& entry) {
  Frame frame{{{"is", "file"}, {"number", number_}, {"path", entry.name}}, ""};
  if (!entry.target.empty()) {
    ++at_;
    frame.head["is"] = "link";
    frame.head["target"] = entry.target;
    return frame;
  }
  if (!stream_.is_open()) stream_.open(entry.path, std::ios::binary);
  frame.bytes.resize(kFilePiece);
  stream_.read(frame.bytes.data(), static_cast<std::streamsize>(kFilePiece));
  if (!stream_.is_open() || stream_.bad()) {
    is_over_ = true;
    return Frame{{{"is", "failed"},
                  {"do", "fetch"},
                  {"number", number_},
                  {"code", "agent.read"},
                  {"message", entry.name + ": cannot be read: " + std::strerror(errno)}},
                 ""};
  }
  frame.bytes.resize(static_cast<std::size_t>(stream_.gcount()));
  const bool is_end = frame.bytes.size() < kFilePiece;
  frame.head["end"] = is_end;
  if (is_end) {
    stream_ = std::ifstream();
    ++at_;
  }
  return frame;
}

}  // namespace motley::run

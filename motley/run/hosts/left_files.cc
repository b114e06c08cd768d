#include "motley/run/hosts/left_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace motley::run {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kLeftPiece = std::size_t{128} << 10;  // bytes; urgent messages wait for one
constexpr int kLeftPieces = 8;                              // at a time

}  // namespace

void LeftFiles::want(const std::string& what, const std::string& name, const std::string& path) {
  Folder folder{what, name, path};
  const auto sent = sent_.find(what);
  const bool is_known =
      (sent != sent_.end() && sent->second == folder) || (sending_ && sending_->folder == folder);
  if (is_known)
    wanted_.erase(what);
  else
    wanted_[what] = std::move(folder);
}

void LeftFiles::go_on(HostLink& link) {
  for (int piece = 0; piece < kLeftPieces && !link.has_more(); ++piece) {
    if (!sending_ && !begin()) return;
    if (!send_piece(link)) return;
  }
}

bool LeftFiles::begin() {
  if (wanted_.empty()) return false;
  Sending next;
  next.folder = wanted_.extract(wanted_.begin()).mapped();
  next.part = fmt::format("left/part-{}", begun_++);
  std::error_code code;
  for (const auto& each : fs::directory_iterator(next.folder.path, code))
    if (each.is_regular_file()) next.files.push_back(each.path());
  if (next.files.empty()) return false;  // removed to make room for a newer one
  sending_ = std::move(next);
  return true;
}

/// Sends a piece. False: the agent takes no more, or the file is gone.
bool LeftFiles::send_piece(HostLink& link) {
  Sending& now = *sending_;
  const fs::path& file = now.files.back();
  if (!now.is_open) now.stream = std::ifstream(file, std::ios::binary);
  now.is_open = true;
  std::string bytes(kLeftPiece, '\0');
  now.stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, now.stream.gcount())));
  const bool is_end = now.stream.eof();
  if (!is_end && !now.stream.good()) {
    sending_.reset();
    return false;
  }
  const std::string path = now.part + "/" + file.filename().string();
  if (!link.post({{"do", "append"}, {"path", path}}, bytes)) return false;
  if (!is_end) return true;
  now.files.pop_back();
  now.is_open = false;
  if (!now.files.empty()) return true;
  const Folder& folder = now.folder;
  const std::string as = fmt::format("left/{}/{}", folder.what, folder.name);
  if (!link.post({{"do", "settle"}, {"path", now.part}, {"as", as}})) return false;
  sent_[folder.what] = folder;
  sending_.reset();
  return true;
}

}  // namespace motley::run

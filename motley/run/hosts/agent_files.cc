#include "motley/run/hosts/agent_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

namespace motley::run {
namespace {

namespace fs = std::filesystem;

/// Returns no answer, or an error about the path.
Result<Json> written(const fs::path& path, const std::error_code& code) {
  if (code) return runtime_error("agent.write", path.string() + ": " + code.message());
  return Json();
}

/// Removes folders of agents that were killed: a live agent locks its folder.
void remove_left_over(const std::string& cache) {
  std::error_code code;
  for (const auto& each : fs::directory_iterator(cache, code)) {
    if (!each.path().filename().string().starts_with("job-")) continue;
    const Descriptor folder(::open(each.path().c_str(), O_RDONLY | O_CLOEXEC));
    if (folder.is_open() && ::flock(folder.number(), LOCK_EX | LOCK_NB) == 0)
      fs::remove_all(each.path(), code);
  }
}

}  // namespace

AgentFiles::~AgentFiles() {
  std::error_code code;
  if (!scratch_.empty()) fs::remove_all(scratch_, code);
}

Result<void> AgentFiles::make() {
  std::error_code code;
  fs::create_directories(cache_ + "/files", code);
  remove_left_over(cache_);
  std::string name = cache_ + "/job-XXXXXX";
  if (code || ::mkdtemp(name.data()) == nullptr)
    return runtime_error("agent.scratch",
                         fmt::format("{}: cannot be written: {}", cache_,
                                     code ? code.message() : std::strerror(errno)));
  scratch_ = name;
  lock_ = Descriptor(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  ::flock(lock_.number(), LOCK_EX | LOCK_NB);
  return {};
}

fs::path AgentFiles::inside(const Frame& frame, const char* key) const {
  return scratch_ / fs::path(frame.head.at(key)).relative_path();
}

fs::path AgentFiles::kept(const Frame& frame) const {
  return fs::path(cache_) / "files" / fs::path(frame.head.at("hash")).filename();
}

Result<Json> AgentFiles::have(const Frame& frame) {
  std::error_code code;
  return Json(
      {{"is", "have"}, {"hash", frame.head.at("hash")}, {"there", fs::exists(kept(frame), code)}});
}

Result<Json> AgentFiles::link(const Frame& frame) {
  const fs::path path = inside(frame, "path");
  std::error_code code;
  fs::create_directories(path.parent_path(), code);
  fs::remove(path, code);
  fs::create_symlink(frame.head.at("target").get<std::string>(), path, code);
  return written(path, code);
}

Result<Json> AgentFiles::write(const Frame& frame) {
  MOTLEY_RETURN_IF_ERROR(add_piece(frame, inside(frame, "path")));
  return Json();
}

Result<Json> AgentFiles::keep(const Frame& frame) {
  const fs::path path = kept(frame), part = scratch_ / path.filename();
  MOTLEY_ASSIGN(const bool is_whole, add_piece(frame, part));
  std::error_code code;
  if (is_whole) fs::rename(part, path, code);
  return written(path, code);
}

/// Returns whether the last piece arrived of a file that could be written entirely.
Result<bool> AgentFiles::add_piece(const Frame& frame, const fs::path& path) {
  std::error_code code;
  if (!incoming_ || incoming_->path != path) {
    fs::create_directories(path.parent_path(), code);
    incoming_ = Incoming{std::ofstream(path, std::ios::binary), path};
  }
  const bool is_end = frame.head.at("end"), had_failed = incoming_->has_failed;
  incoming_->stream.write(frame.bytes.data(), static_cast<std::streamsize>(frame.bytes.size()));
  if (is_end) incoming_->stream.close();
  const std::string why = std::strerror(errno);
  incoming_->has_failed = had_failed || incoming_->stream.fail();
  const bool has_failed = incoming_->has_failed;
  if (is_end) incoming_.reset();
  if (!has_failed) return is_end;
  fs::remove(path, code);
  if (had_failed) return false;  // already reported
  return runtime_error("agent.write",
                       fmt::format("{}: cannot be written: {}; make room for it there, or leave "
                                   "the host out",
                                   path.string(), why));
}

Result<Json> AgentFiles::append(const Frame& frame) {
  const fs::path path = inside(frame, "path");
  std::error_code code;
  fs::create_directories(path.parent_path(), code);
  std::ofstream(path, std::ios::binary | std::ios::app) << frame.bytes;
  return {};
}

Result<Json> AgentFiles::settle(const Frame& frame) {
  const fs::path from = inside(frame, "path"), to = inside(frame, "as");
  std::error_code code;
  fs::remove_all(to.parent_path(), code);
  fs::create_directories(to.parent_path(), code);
  fs::rename(from, to, code);
  return written(to, code);
}

Json AgentFiles::checkpoints() const {
  Json paths = Json::array();
  std::error_code code;
  for (const char* folder : {"left/checkpoint", "run/checkpoint"})
    for (const auto& each : fs::directory_iterator(scratch_ / folder, code))
      paths.push_back(std::string(folder) + "/" + each.path().filename().string());
  return paths;
}

Result<Json> AgentFiles::fetch(const Frame& frame) {
  const Json number = frame.head.value("number", 0);
  const bool is_kept = frame.head.contains("kept");
  const fs::path base = is_kept ? fs::path(cache_) / "kept" : scratch_;
  const fs::path root = base / fs::path(frame.head.at(is_kept ? "kept" : "path")).relative_path();
  outgoing_.emplace_back(
      OutgoingFiles::Places{root, base, scratch_ / fmt::format("out-{}", ++fetches_)}, number);
  return {};
}

Result<Json> AgentFiles::retain(const Frame& frame) {
  const std::set<std::int64_t> steps = frame.head.at("steps");
  const fs::path root = fs::path(cache_) / "kept" / fs::path(frame.head.at("kept")).filename();
  std::error_code code;
  std::vector<fs::path> old;
  for (const auto& each : fs::recursive_directory_iterator(root, code)) {
    const std::string name = each.path().filename();
    if (!name.starts_with("step-") || !each.is_directory(code)) continue;
    const std::int64_t step = std::strtoll(name.c_str() + 5, nullptr, 10);
    if (!steps.empty() && step < *steps.rbegin() && !steps.contains(step))
      old.push_back(each.path());
  }
  for (const fs::path& path : old) fs::remove_all(path, code);
  return {};
}

std::optional<Frame> AgentFiles::next_outgoing() {
  if (outgoing_.empty()) return std::nullopt;
  auto frame = outgoing_.front().next();
  if (!frame) outgoing_.pop_front();
  return frame;
}

}  // namespace motley::run

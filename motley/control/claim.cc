#include "motley/control/claim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/run/hosts/here.h"
#include "motley/run/launch/process_life.h"

namespace motley::control {
namespace {

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

bool is_locked(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct flock lock = whole_file();
  return file.is_open() && ::fcntl(file.number(), F_OFD_GETLK, &lock) == 0 &&
         lock.l_type != F_UNLCK;
}

/// Reads {"pid", "host"} from a file that may be absent or incomplete.
std::optional<Holder> read_holder(const std::string& path) {
  const auto text = read_file(path);
  const auto json = text ? parse_json(*text, path) : tl::make_unexpected(text.error());
  if (!json || !json->is_object()) return std::nullopt;
  const auto pid = json->find("pid"), host = json->find("host");
  if (pid == json->end() || !pid->is_number_integer()) return std::nullopt;
  const bool has_host = host != json->end() && host->is_string();
  return Holder{pid->get<std::int64_t>(), has_host ? host->get<std::string>() : ""};
}

bool is_here(const Holder& holder) {
  return holder.host.empty() || holder.host == run::own_host_name();
}

Error in_use_error(const RunDirectory& directory, const Holder& holder) {
  std::string who = "another process leads", how;
  if (holder.pid > 0 && is_here(holder)) {
    who = fmt::format("process {} leads", holder.pid);
    how = fmt::format(" (kill {})", holder.pid);
  } else if (holder.pid > 0) {
    who = fmt::format("process {} of host {} leads", holder.pid, holder.host);
  }
  return {ErrorKind::kUsage, "run.in-use",
          fmt::format("{}: is in use by a run that {}; wait for it, stop it{}, or name another "
                      "directory",
                      directory.path, who, how)};
}

bool is_this_process(const Holder& holder) { return holder.pid == ::getpid() && is_here(holder); }

}  // namespace

std::optional<Holder> find_holder(const RunDirectory& directory) {
  if (is_locked(directory.in_use())) return read_holder(directory.in_use()).value_or(Holder());
  const auto leader = read_holder(directory.start());
  const bool lives =
      leader && is_here(*leader) && run::is_writer_alive(leader->pid, directory.start());
  return lives ? leader : std::nullopt;
}

Result<void> check_not_in_use(const RunDirectory& directory) {
  const auto holder = find_holder(directory);
  if (!holder || is_this_process(*holder)) return {};
  return tl::make_unexpected(in_use_error(directory, *holder));
}

Result<Claim> Claim::take(const RunDirectory& directory) {
  MOTLEY_RETURN_IF_ERROR(check_not_in_use(directory));
  std::error_code code;
  std::filesystem::create_directories(directory.path, code);
  if (code)
    return runtime_error("cli.run-dir", fmt::format("{}: cannot create the run directory: {}",
                                                    directory.path, code.message()));
  Descriptor file(::open(directory.in_use().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.is_open())
    return runtime_error("cli.run-dir",
                         fmt::format("{}: {}", directory.in_use(), std::strerror(errno)));
  const struct flock lock = whole_file();
  while (::fcntl(file.number(), F_OFD_SETLK, &lock) != 0) {
    // Where files cannot be locked, start.json alone protects against processes of this host.
    if (errno != EAGAIN && errno != EACCES) return Claim(Descriptor());
    MOTLEY_RETURN_IF_ERROR(check_not_in_use(directory));
    if (is_locked(directory.in_use())) return Claim(Descriptor());  // by this process
  }
  const std::string own = Json{{"pid", ::getpid()}, {"host", run::own_host_name()}}.dump() + "\n";
  const bool is_written =
      ::ftruncate(file.number(), 0) == 0 &&
      ::pwrite(file.number(), own.data(), own.size(), 0) == static_cast<ssize_t>(own.size());
  if (!is_written)
    return runtime_error("cli.run-dir",
                         fmt::format("{}: {}", directory.in_use(), std::strerror(errno)));
  return Claim(std::move(file));
}

}  // namespace motley::control

#include "motley/run/launch/left_checkpoint.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <tuple>
#include <vector>

#include "motley/run/checkpoints/checkpoint.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;
constexpr double kMostPause = 10;  // seconds without a byte

struct LeftCheckpoint {
  std::int64_t step = 0;
  bool is_here = false;
  std::string host, path;  ///< SCRATCH/path there
};

/// Parses a checkpoint folder's step; none: it is not a whole checkpoint.
std::optional<std::int64_t> step_of(const std::string& path) {
  constexpr std::string_view kPrefix = "step-";
  const std::string name = fs::path(path).filename();
  std::int64_t step = 0;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + kPrefix.size(), end, step);
  return read.ec == std::errc() && read.ptr == end ? std::optional(step) : std::nullopt;
}

/// Returns all, newest first; of equal ones the local one first.
std::vector<LeftCheckpoint> find_all(const TakeoverState& inherited) {
  std::vector<LeftCheckpoint> found;
  for (const auto& [host, paths] : inherited.checkpoints)
    for (const std::string& path : paths)
      if (const auto step = step_of(path); step)
        found.push_back({*step, host == inherited.host, host, path});
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(a.step, a.is_here) > std::tie(b.step, b.is_here);
  });
  return found;
}

Result<std::string> bring(Hosts& hosts, const LeftCheckpoint& left, const CheckpointStore& store) {
  MOTLEY_RETURN_IF_ERROR(store.begin(left.step));
  const auto come = hosts.on(left.host).fetch(left.path, store.half_written(left.step), kMostPause);
  auto adopted = come ? store.adopt(left.step) : tl::make_unexpected(come.error());
  if (!adopted) return tl::make_unexpected(store.give_up(left.step, adopted.error()));
  return adopted;
}

}  // namespace

Result<std::string> bring_left_checkpoint(Hosts& hosts, const TakeoverState& inherited,
                                          const std::string& run_dir) {
  const CheckpointStore store(run_dir);
  Result<std::string> brought = std::string();
  for (const LeftCheckpoint& each : find_all(inherited)) {
    if (hosts.agents_on(each.host).empty()) continue;
    brought = bring(hosts, each, store);
    if (brought) break;
  }
  return brought;
}

std::string find_left_checkpoint(const TakeoverState& inherited) {
  for (const LeftCheckpoint& each : find_all(inherited))
    if (each.is_here) return inherited.scratch + "/" + each.path;
  return "";
}

}  // namespace motley::run

// Measures the flows that a FlowNetwork starts and ends per second of processor time, by the number
// that share links: groups of nodes, each on its own switch, with a fixed number of flows in flight
// between random NICs. Usage: bench_flow_network OUT.json; prints one table.
#include "motley/simulate/flow_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/random.h"

namespace motley {
namespace {

constexpr int kNodes = 8;  // per group: NICs out, NICs in, the switch
constexpr int kLinks = 2 * kNodes + 1, kEvents = 200'000, kRepeats = 3;

cost::Flow draw_flow(SplitMix64& random, int group) {
  const auto link = [&](std::uint64_t of_group) {
    return static_cast<std::int32_t>(of_group) + kLinks * group;
  };
  const std::uint64_t from = random.below(kNodes), to = random.below(kNodes);
  return {1e6 * (1 + random.uniform()), {{link(from)}, {link(2 * kNodes)}, {link(kNodes + to)}}};
}

double seconds_of(int groups, int flows_each) {
  SplitMix64 random(1);
  simulate::FlowNetwork network(
      std::vector<double>(static_cast<std::size_t>(kLinks * groups), 1e9));
  std::vector<int> group_of;
  std::vector<std::int32_t> ended;
  const auto start = [&](trace::Nanoseconds now, int group) {
    const auto flow = static_cast<std::size_t>(network.start(now, draw_flow(random, group)));
    group_of.resize(std::max(group_of.size(), flow + 1));
    group_of[flow] = group;
  };
  const std::clock_t begin = std::clock();
  for (int i = 0; i < groups * flows_each; ++i) start(0, i % groups);
  for (int events = groups * flows_each; events < kEvents;) {
    const trace::Nanoseconds now = network.next_end();
    ended.clear();
    network.end_next(ended);
    for (const std::int32_t flow : ended) start(now, group_of[static_cast<std::size_t>(flow)]);
    events += 2 * static_cast<int>(ended.size());
  }
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

Result<void> run(const std::string& path) {
  fmt::print("{:>8}{:>14}{:>26}\n", "groups", "flows in each", "million starts+ends / s");
  Json rows = Json::array();
  for (const auto& [groups, flows] :
       {std::pair{1, 1}, {1, 4}, {128, 1}, {128, 4}, {128, 16}, {16, 64}, {1, 1024}}) {
    double best = seconds_of(groups, flows);
    for (int i = 1; i < kRepeats; ++i) best = std::min(best, seconds_of(groups, flows));
    fmt::print("{:>8}{:>14}{:>26.3f}\n", groups, flows, kEvents / best / 1e6);
    rows.push_back({{"groups", groups}, {"flows_each", flows}, {"per_second", kEvents / best}});
  }
  return write_file_atomic(path, Json{{"rows", rows}}.dump(2) + "\n");
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: bench_flow_network OUT.json\n");
    return 2;
  }
  if (const auto done = motley::run(argv[1]); !done) {
    fmt::print(stderr, "{}\n", done.error().message);
    return 1;
  }
  return 0;
}

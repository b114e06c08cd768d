// Times reading a model file: bench_graph_driver MODEL. Prints JSON: ops, and seconds of several
// readings (parsing, verification, layers, and work and bytes of every operator).
#include <fmt/format.h>

#include <chrono>

#include "motley/base/json.h"
#include "motley/graph/model_file.h"

int main(int count, char** arguments) {
  if (count != 2) {
    fmt::print(stderr, "usage: bench_graph_driver MODEL\n");
    return 2;
  }
  constexpr int kRepeats = 21;
  motley::Json seconds = motley::Json::array();
  std::size_t ops = 0;
  for (int i = 0; i < kRepeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto model = motley::graph::read_model(arguments[1]);
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    if (!model) {
      fmt::print(stderr, "{}\n", model.error().message);
      return 1;
    }
    ops = model->graph.ops.size();
  }
  fmt::print("{}\n", motley::Json{{"ops", ops}, {"seconds", seconds}}.dump());
  return 0;
}

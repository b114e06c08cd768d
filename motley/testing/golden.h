#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "motley/base/file.h"
#include "motley/graph/graph_text.h"
#include "motley/synth/ranks/lower_sharded.h"
#include "motley/synth/ranks/sample_sharding.h"
#include "motley/testing/places.h"

namespace motley::synth {

/// Folder of lowering's golden files.
inline const std::string kGolden = testing::source_path("tests/golden/synth/");

inline std::string read_text(const std::string& path) {
  const auto text = read_file(path);
  EXPECT_TRUE(text) << text.error().message;
  return text ? *text : "";
}

/// Reads a golden graph ("mlp", "cnn", "gpt"), once.
inline const graph::Graph& read_graph(const std::string& model) {
  static std::map<std::string, graph::Graph> known;
  if (const auto found = known.find(model); found != known.end()) return found->second;
  auto graph = graph::parse_graph(read_text(kGolden + model + ".graph.txt"), model);
  EXPECT_TRUE(graph) << graph.error().message;
  return known.emplace(model, std::move(*graph)).first->second;
}

/// Compares a program's text with its golden file. MOTLEY_UPDATE_GOLDEN=1 rewrites the file.
inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = kGolden + name + ".program.txt";
  if (std::getenv("MOTLEY_UPDATE_GOLDEN") != nullptr) {
    EXPECT_TRUE(write_file_atomic(path, text));
  }
  EXPECT_EQ(text, read_text(path));
}

enum class Kept { kWhole, kInParts };

inline program::Program lower_spread(const graph::Graph& graph,
                                     const std::vector<std::int64_t>& samples, Kept kept,
                                     Bytes bucket_bytes) {
  Sharding sharding;
  for (const std::int64_t count : samples) {
    sharding.devices.push_back("a:" + std::to_string(sharding.devices.size()));
    sharding.shares.push_back(static_cast<double>(count));
    sharding.batch += count;
  }
  spread_samples(graph, sharding);
  if (kept == Kept::kInParts) keep_parameters_in_parts(graph, sharding);
  LowerOptions options;
  options.bucket_bytes = bucket_bytes;
  const auto program = lower_sharded(graph, sharding, options);
  EXPECT_TRUE(program) << program.error().message;
  return *program;
}

}  // namespace motley::synth

#include "motley/graph/model_file.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "motley/base/random.h"
#include "motley/graph/graph_text.h"

namespace motley::graph {
namespace {

constexpr std::string_view kText = R"(motley.graph/1
name "m"
size batch 1 64
input %0: f32[batch, 2] "x"
param %1: f32[2] "w" tied "v"
constant %2: i8[1] "motley.constant.0"
op %3: f32[] = aten::dot(%0, %1) fwd "" seq 0
output loss %3
)";

class ReadModelTest : public ::testing::Test {
 protected:
  void TearDown() override { ::unlink(path_.c_str()); }

  /// Returns the message for a model file whose v has this `shape`, `dtype` and contents.
  std::string message_of(DType dtype, std::vector<std::int64_t> shape, std::string_view bytes) {
    const std::vector<NamedTensor> tensors = {
        {"w", {DType::kF32, {2}, std::as_bytes(std::span("01234567", 8))}},
        {"v", {dtype, std::move(shape), std::as_bytes(std::span(bytes))}},
        {"motley.constant.0", {DType::kI8, {1}, std::as_bytes(std::span("c", 1))}}};
    EXPECT_TRUE(write_safetensors(path_, tensors, {{"motley.graph", std::string(kText)}}));
    const auto model = read_model(path_);
    return model ? "read" : model.error().message;
  }

  const std::string path_ =
      ::testing::TempDir() + "motley_model_file_test_" + std::to_string(getpid()) + ".motley";
};

TEST_F(ReadModelTest, ReadsGraphAndWeights) {
  ASSERT_EQ(message_of(DType::kF32, {2}, "01234567"), "read");
  const auto model = read_model(path_);
  EXPECT_EQ(model->graph.name, "m");
  ASSERT_TRUE(model->weights);
  EXPECT_EQ(model->weights->tensors().at("w").bytes.size(), 8u);
  EXPECT_EQ(model->hash, hash_hex(kText));
}

TEST_F(ReadModelTest, ReadsGraphOnlyFilesAndPlainText) {
  ASSERT_TRUE(write_safetensors(path_, {}, {{"motley.graph", std::string(kText)}}));
  const auto graph_only = read_model(path_);
  ASSERT_TRUE(graph_only) << graph_only.error().message;
  EXPECT_FALSE(graph_only->weights);
  ASSERT_TRUE(write_file_atomic(path_, "# a remark\n" + std::string(kText)));
  const auto text = read_model(path_);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_FALSE(text->weights);
  EXPECT_EQ(text->graph, graph_only->graph);
  // The hash is of the canonical text, so comments do not change it.
  EXPECT_EQ(text->hash, graph_only->hash);
}

TEST_F(ReadModelTest, NamesTensorsThatDoNotFit) {
  EXPECT_EQ(message_of(DType::kF32, {1, 2}, "01234567"),
            path_ + ": tensor 'v': found f32[1, 2], wanted f32[2]; export the model again");
  EXPECT_EQ(message_of(DType::kI64, {1}, "01234567"),
            path_ + ": tensor 'v': found i64[1], wanted f32[2]; export the model again");
  const std::vector<NamedTensor> tensors = {
      {"w", {DType::kF32, {2}, std::as_bytes(std::span("01234567", 8))}}};
  ASSERT_TRUE(write_safetensors(path_, tensors, {{"motley.graph", std::string(kText)}}));
  EXPECT_EQ(read_model(path_).error(),
            (Error{ErrorKind::kUsage, "graph.weights",
                   path_ + ": no tensor 'v', wanted f32[2]; export the model again"}));
}

TEST_F(ReadModelTest, NamesFilesThatAreNoModel) {
  EXPECT_EQ(read_model(path_).error().message, path_ + ": no such file");
  ASSERT_TRUE(write_safetensors(path_, {}, {}));
  EXPECT_EQ(read_model(path_).error(),
            (Error{ErrorKind::kUsage, "graph.no-graph",
                   path_ + ": no 'motley.graph' in its metadata, so it is not a model file; write "
                           "one with python -m motley.export"}));
  ASSERT_TRUE(write_safetensors(path_, {}, {{"motley.graph", "motley.graph/1\nname x"}}));
  EXPECT_EQ(read_model(path_).error().message,
            path_ + ":2: found 'x', wanted the quoted name of the graph");
  ASSERT_TRUE(write_file_atomic(path_, ""));
  EXPECT_EQ(read_model(path_).error().message,
            path_ + ": 0 bytes, too short for a safetensors file");
}

}  // namespace
}  // namespace motley::graph

#include "motley/run/checkpoints/hugging_face.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "motley/base/file.h"
#include "motley/base/json.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A trained model of four tensors (one row of two floats each, 8 bytes): "embed" and "head" are
/// tied; "norm" of another layer happens to be identical to "bias".
class HuggingFaceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "motley-hf-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    fs::create_directories(dir_ + "/source");
    put("source/config.json", R"({"model_type": "gpt2", "dtype": "float32"})");
  }
  void TearDown() override { fs::remove_all(dir_); }

  void put(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ + "/" + name) << text;
  }
  std::string text(const std::string& name) const { return *read_file(dir_ + "/" + name); }

  void write_tensors(const std::string& name, const std::vector<std::string>& names,
                     DType dtype = DType::kF32) {
    std::vector<NamedTensor> tensors;
    for (const std::string& each : names) {
      const auto& values = each == "embed" || each == "head" ? tied_ : equal_;
      const std::int64_t elements = dtype == DType::kF32 ? 2 : 4;
      tensors.push_back({each, {dtype, {elements}, std::as_bytes(std::span(values))}});
    }
    ASSERT_TRUE(write_safetensors(dir_ + "/" + name, tensors, {}));
  }

  Result<HuggingFaceFolder> write(std::int64_t shard_bytes = 1000) {
    const auto file = Safetensors::open(dir_ + "/model.safetensors");
    const TensorFile only{"model", &*file};
    const auto files = TensorFiles::make({&only, 1});
    return write_hugging_face(*files, {dir_ + "/source", dir_ + "/made", shard_bytes});
  }

  std::vector<std::string> names_in(const std::string& name) const {
    const auto file = Safetensors::open(dir_ + "/made/" + name);
    EXPECT_TRUE(file);
    std::vector<std::string> names;
    for (const auto& [each, tensor] : file->tensors()) names.push_back(each);
    return names;
  }

  std::string dir_;
  std::vector<float> tied_ = {1, 2}, equal_ = {1, 1};
};

TEST_F(HuggingFaceTest, LeavesOutTiedNamesThatTheSourceDoesNotHave) {
  write_tensors("source/model.safetensors", {"bias", "embed", "norm"});
  write_tensors("model.safetensors", {"bias", "embed", "head", "norm"});
  const auto made = write();
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(made->weights, ElementsAre("model.safetensors"));
  EXPECT_THAT(made->left_out, ElementsAre("head"));
  EXPECT_THAT(names_in("model.safetensors"), ElementsAre("bias", "embed", "norm"));
  EXPECT_FALSE(fs::exists(dir_ + "/made/model.safetensors.index.json"));
  EXPECT_EQ(text("made/config.json"), text("source/config.json"));
}

TEST_F(HuggingFaceTest, KeepsWhatTheSourceHasAndANewHead) {
  // "norm" equals "bias", and the source has both; "head" is new and equals nothing there.
  write_tensors("source/model.safetensors", {"bias", "norm"});
  write_tensors("model.safetensors", {"bias", "head", "norm"});
  const auto made = write();
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(made->left_out, IsEmpty());
  EXPECT_THAT(names_in("model.safetensors"), ElementsAre("bias", "head", "norm"));
}

TEST_F(HuggingFaceTest, KeepsAllNamesWhereTheSourceHasNoWeights) {
  write_tensors("model.safetensors", {"embed", "head"});
  ASSERT_TRUE(write());
  EXPECT_THAT(names_in("model.safetensors"), ElementsAre("embed", "head"));
}

TEST_F(HuggingFaceTest, ShardsAboveASize) {
  // 8 bytes each: two fit into 16, so five make three files; one larger than a shard has its own.
  write_tensors("model.safetensors", {"a", "b", "c", "d", "e"});
  const auto made = write(16);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(made->weights,
              ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors"));
  EXPECT_THAT(names_in("model-00002-of-00003.safetensors"), ElementsAre("c", "d"));
  const auto index = parse_json(text("made/model.safetensors.index.json"), "index");
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ((*index)["metadata"]["total_size"], 40);
  EXPECT_EQ((*index)["weight_map"]["d"], "model-00002-of-00003.safetensors");
  EXPECT_EQ((*index)["weight_map"].size(), 5U);
  fs::remove_all(dir_ + "/made");
  EXPECT_EQ(write(1)->weights.size(), 5U);
}

TEST_F(HuggingFaceTest, CopiesTextsButNeitherCodeNorWeights) {
  write_tensors("model.safetensors", {"a"}, DType::kBF16);
  for (const char* name : {"tokenizer.json", "merges.txt", "spiece.model", "chat_template.jinja",
                           "modeling_own.py", "pytorch_model.bin", "model.safetensors.index.json"})
    put(std::string("source/") + name, name);
  ASSERT_TRUE(write());
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(dir_ + "/made"))
    found.insert(entry.path().filename().string());
  EXPECT_EQ(found, (std::set<std::string>{"config.json", "model.safetensors", "tokenizer.json",
                                          "merges.txt", "spiece.model", "chat_template.jinja"}));
  EXPECT_EQ(text("made/merges.txt"), "merges.txt");
  // The weights are bf16 now: from_pretrained reads the dtype from the configuration.
  EXPECT_EQ(text("made/config.json"),
            "{\n  \"model_type\": \"gpt2\",\n  \"dtype\": \"bfloat16\"\n}\n");
}

TEST_F(HuggingFaceTest, NamesTheFolderThatIsWrong) {
  write_tensors("model.safetensors", {"a"});
  put("source/config.json", "[]");
  EXPECT_EQ(write().error().message,
            dir_ + "/source/config.json: found no object, wanted a configuration");
  fs::remove(dir_ + "/source/config.json");
  EXPECT_EQ(
      write().error().message,
      dir_ + "/source: found no config.json, wanted the folder that the model was exported from");
  put("source/config.json", "{}");
  fs::create_directories(dir_ + "/made/notes");
  EXPECT_EQ(write().error().message,
            dir_ + "/made: is there and is not empty; name another folder");
}

}  // namespace
}  // namespace motley::run

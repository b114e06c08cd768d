#include "motley/cli/demo/demo_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "motley/testing/small_inputs.h"

namespace motley::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DemoPlacesTest : public ::testing::Test {
 protected:
  std::string put(const std::string& file) {
    const std::filesystem::path path = directory_.file(file);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << "x";
    return path.string();
  }
  void make_sources() {
    put("examples/digits_cnn.py");
    put("python/motley/export.py");
    search_.program = directory_.file("build/motley");
  }
  /// Runs the search where only these interpreters have all requested modules.
  Result<DemoPlaces> find(const std::vector<std::string>& complete) {
    asked_.clear();
    return find_demo_places(
        search_,
        [&](const std::string& python, const std::vector<std::string>& modules) -> std::string {
          asked_.push_back(python);
          wanted_ = modules;
          const bool has = std::count(complete.begin(), complete.end(), python) > 0;
          return has ? "" : "has no torch";
        });
  }

  control::TemporaryDirectory directory_;
  DemoSearch search_{.torch = "2.15"};
  std::vector<std::string> asked_, wanted_;
};

TEST_F(DemoPlacesTest, OfTheSourcesLieBesideTheBuild) {
  make_sources();
  const std::string python = put(".venv/bin/python");
  const DemoPlaces wanted{python, directory_.file("python"), directory_.file("examples")};
  EXPECT_EQ(find({python, "python3"}).value(), wanted);
  EXPECT_THAT(wanted_, ElementsAre("torch"));
}

TEST_F(DemoPlacesTest, OfAPackageLieInItAndItsInterpreterHasThePackage) {
  put("lib/python3.11/site-packages/motley/examples/digits_cnn.py");
  put("lib/python3.11/site-packages/motley/export.py");
  const std::string python = put("bin/python3");
  search_.program = directory_.file("lib/python3.11/site-packages/motley/bin/motley");
  search_.torch_folder = directory_.file("lib/python3.11/site-packages/torch");
  const DemoPlaces wanted{python, "",
                          directory_.file("lib/python3.11/site-packages/motley/examples")};
  EXPECT_EQ(find({python, "python3"}).value(), wanted);
  EXPECT_THAT(wanted_, ElementsAre("torch", "motley.export"));
  // Over system packages, whose interpreter has no motley.
  search_.torch_folder = directory_.file("system/lib/python3.11/dist-packages/torch");
  put("system/bin/python3");
  EXPECT_EQ(find({python, "python3"}).value(), wanted);
  EXPECT_THAT(asked_, ElementsAre(python));
}

TEST_F(DemoPlacesTest, TheFirstInterpreterWithPyTorchIsTaken) {
  make_sources();
  search_.torch_folder = directory_.file("other/lib/python3.12/site-packages/torch");
  const std::string beside = put("other/bin/python3"), own = put(".venv/bin/python");
  EXPECT_EQ(find({"python3"}).value().python, "python3");
  EXPECT_THAT(asked_, ElementsAre(beside, own, "python3"));
  EXPECT_EQ(find({beside, own}).value().python, beside);
}

TEST_F(DemoPlacesTest, OneThatWasNamedIsTheOnlyOne) {
  make_sources();
  put(".venv/bin/python");
  search_.named_python = "python3.12";
  EXPECT_EQ(find({"python3.12"}).value().python, "python3.12");
  search_.python = "python3.13";
  EXPECT_FALSE(find({"python3.12", "python3"}));
  EXPECT_THAT(asked_, ElementsAre("python3.13"));
}

TEST_F(DemoPlacesTest, WithoutPyTorchItSaysWhatWasTriedAndWhatToType) {
  make_sources();
  search_.torch_folder = directory_.file("env/lib/python3.11/site-packages/torch");
  const std::string own = put(".venv/bin/python");
  const auto found = find({});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().kind, ErrorKind::kUsage);
  EXPECT_EQ(found.error().code, "demo.python");
  EXPECT_EQ(found.error().message,
            "no interpreter that has PyTorch, which exports the demo's models: " +
                directory_.file("env/bin/python3") +
                " (beside the worker's PyTorch) is not there; " + own +
                " (of the sources) has no torch; python3 (in PATH) has no torch; type make setup, "
                "or name one: motley demo --python PYTHON");
  std::filesystem::remove(directory_.file("python/motley/export.py"));
  EXPECT_THAT(find({}).error().message,
              HasSubstr("; type pip install torch==2.15.*, or name one: motley demo --python"));
}

TEST_F(DemoPlacesTest, WithoutExamplesNobodyIsAsked) {
  search_.program = directory_.file("build/motley");
  const auto found = find({"python3"});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message,
            "no digits_cnn.py in " + directory_.file("examples") +
                "; name the folder of Motley's examples: motley demo --examples FOLDER");
  EXPECT_THAT(asked_, IsEmpty());
  search_.examples = directory_.file("mine");
  EXPECT_THAT(find({"python3"}).error().message,
              HasSubstr("no digits_cnn.py in " + search_.examples + "; name the"));
  put("mine/digits_cnn.py");
  EXPECT_EQ(find({"python3"}).value().examples, search_.examples);
}

TEST(AskPython, NamesTheFirstModuleThatIsMissing) {
  EXPECT_EQ(ask_python("python3", {"json", "json.tool"}), "");
  EXPECT_EQ(ask_python("python3", {"json", "no_such", "json.no_such"}), "has no no_such");
  EXPECT_EQ(ask_python("python3", {"json.no_such"}), "has no json.no_such");
  EXPECT_EQ(ask_python("python3", {"no_such.module"}), "has no no_such.module");
  EXPECT_EQ(ask_python("no-such-python-anywhere", {"json"}), "cannot be run");
}

}  // namespace
}  // namespace motley::cli

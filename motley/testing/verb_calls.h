#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/exit_code.h"
#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/cli/app.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"

namespace motley::cli {

using Words = std::vector<std::string>;

/// Command lines over fake workers, in a directory of the test: the MLP, two CPUs, three steps.
class VerbTest : public ::testing::Test {
 protected:
  VerbTest() {
    EXPECT_TRUE(control::write_mlp(model_));
    EXPECT_TRUE(control::write_mlp_data(data_));
    write_cluster(control::kTwoCpus);
    environment_["MOTLEY_PROFILES"] = directory_.file("profiles.db");
    workers_.events = {{"ready", 0, {{"first_step", 0}}}};
    for (std::int64_t step = 0; step < 3; ++step)
      for (const int rank : {0, 1})
        workers_.events.push_back(
            control::step_event(rank, step, 0.5, 0.25, 2.0 - 0.5 * static_cast<double>(step)));
  }

  void write_cluster(std::string_view text) { write("two.toml", text); }
  /// Returns its path.
  std::string write(const std::string& name, std::string_view text) const {
    EXPECT_TRUE(write_file_atomic(directory_.file(name), text));
    return directory_.file(name);
  }

  int call(Words arguments) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = run_app(std::move(arguments),
                             {.environment = environment_, .workers = &workers_, .clock = &clock_});
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }
  int call_with_inputs(const std::string& verb, const Words& more = {}) {
    Words arguments = {verb, "-m",        model_, "-C", cluster_, "--global-batch",
                       "8",  "--planner", "split"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return call(arguments);
  }
  int call_run(Words more = {}) {
    more.insert(more.end(), {"--data", data_, "--steps", "3", "--run-dir", run_dir_});
    return call_with_inputs("run", more);
  }
  /// Returns the JSON on stdout of a successful call.
  Json answer(Words arguments) {
    arguments.push_back("--json");
    EXPECT_EQ(call(std::move(arguments)), kDone) << err_;
    return parse_json(out_, "stdout").value_or(Json());
  }
  /// Returns exit code and messages without notes: "2 which model? [cli.model]".
  std::string refusal(Words arguments) {
    arguments.push_back("--quiet");
    const int code = call(std::move(arguments));
    EXPECT_TRUE(err_.starts_with("motley: ")) << err_;
    return std::to_string(code) + " " + err_.substr(0, err_.size() - 1).erase(0, 8);
  }
  Json json() const { return parse_json(out_, "stdout").value(); }

  control::TemporaryDirectory directory_;
  const std::string model_ = directory_.file("mlp.motley");
  const std::string data_ = directory_.file("data.safetensors");
  const std::string cluster_ = directory_.file("two.toml");
  const std::string run_dir_ = directory_.file("run");
  std::map<std::string, std::string> environment_;
  control::FakeWorkers workers_;
  control::FakeClock clock_{Seconds(1)};
  std::string out_, err_;
};

}  // namespace motley::cli

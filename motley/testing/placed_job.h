#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/run/checkpoints/checkpoint.h"
#include "motley/run/job.h"
#include "motley/testing/forked_agent.h"

namespace motley::run {

/// For tests: a job of three devices, here, on host b and on host c, with all its files, and the
/// hosts' agents.
///
/// Of a batch of 6 samples the devices take 3, 2 and 1, and they keep as many of the rows 0 to 5 of
/// "w"; each keeps all of "bias". "w" is 0, 1, ... in the model file.
class PlacedJob : public ::testing::Test {
 protected:
  /// Writes once what no test changes.
  static void SetUpTestSuite() {
    files_ = make_folder();
    write_model(files_ + "/small.motley", 0);
    write_data(files_ + "/data.safetensors");
    ASSERT_TRUE(write_file_atomic(files_ + "/program.txt", program_text()));
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(files_); }
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);
    dir_ = make_folder();
    std::filesystem::create_directory(dir_ + "/out");
    ::setenv("TMPDIR", (dir_ + "/out").c_str(), 1);
    job_.run_dir = dir_ + "/run";
    job_.program_path = files_ + "/program.txt";
    job_.model_path = files_ + "/small.motley";
    job_.data.path = files_ + "/data.safetensors";
    job_.steps = 4;
    for (const std::string host : {"", "b", "c"})
      job_.devices.push_back(
          {.name = (host.empty() ? "a" : host) + ":0", .kind = "cpu", .host = host});
    hosts_ = std::make_unique<Hosts>(
        [](const std::string&) { return std::vector<std::string>{"false"}; },
        Hosts::Versions{"", ""});
  }
  void TearDown() override {
    hosts_.reset();
    agents_.clear();
    usual_.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", usual_.c_str(), 1);
    std::filesystem::remove_all(dir_);
  }

  ForkedAgent& start(const std::string& host) {
    return *(agents_[host] = std::make_unique<ForkedAgent>(host, cache(host)));
  }
  void come(const std::string& host, const std::string& coordinator = "127.0.0.1") {
    hosts_->take_in(host, start(host).give(coordinator));
  }
  std::string cache(const std::string& host) const { return dir_ + "/cache-" + host; }
  std::string scratch(const std::string& host) { return hosts_->on(host).scratch(); }
  /// Waits until the host has done all requests so far.
  void settle(const std::string& host) {
    EXPECT_TRUE(hosts_->on(host).ask({{"do", "exists"}, {"path", "/"}}, "exists", 10));
  }
  Job job_on(const std::string& host) {
    settle(host);
    const std::string path = scratch(host) + "/run/job.json";
    return job_from_json(parse_json(read_file(path).value(), path).value(), path).value();
  }

  static std::string graph_text() {
    return "motley.graph/1\n"
           "name \"small\"\n"
           "size batch 1 4096\n"
           "input %0: f32[batch, 4] \"x\"\n"
           "param %1: f32[6, 4] \"w\"\n"
           "param %2: f32[4] \"bias\"\n"
           "op %3: f32[] = aten::sum(%0, none) fwd \"\" seq 0\n"
           "output loss %3\n";
  }
  static std::string program_text() {
    std::string text = "motley.program/1\nmodel \"m\" plan \"p\" global_batch 6\n";
    const int samples[] = {3, 2, 1}, first[] = {0, 3, 5};
    for (const int rank : {0, 1, 2}) {
      const std::string count = std::to_string(samples[rank]), begin = std::to_string(first[rank]);
      text += std::string("device \"") + "abc"[rank] + ":0\" samples " + count + " first " + begin;
      text += "\nbuffer %0: input f32[" + count + ", 4] \"x\"\n";
      text += "buffer %1: parameter f32[" + count + ", 4] \"w\" part 1 " + begin + " 6 4\n";
      text += "buffer %2: parameter f32[4] \"bias\"\n";
      text += "compute ^0: %0 = motley::load(0) \"load x\"\n";
    }
    return text;
  }

  static NamedTensor tensor(const std::string& name, std::vector<std::int64_t> shape,
                            std::span<const float> values) {
    return {name, {DType::kF32, std::move(shape), std::as_bytes(values)}};
  }
  static std::vector<float> numbers(float first) {
    std::vector<float> values(24);
    std::iota(values.begin(), values.end(), first);
    return values;
  }
  static void write_model(const std::string& path, float first) {
    const std::vector<float> w = numbers(first), bias(4);
    const NamedTensor tensors[] = {tensor("w", {6, 4}, w), tensor("bias", {4}, bias)};
    ASSERT_TRUE(write_safetensors(path, tensors, {{"motley.graph", graph_text()}}));
  }
  /// Writes 60 samples; the Nth begins with 4 N.
  static void write_data(const std::string& path) {
    std::vector<float> x(60 * 4);
    std::iota(x.begin(), x.end(), 0.0F);
    const NamedTensor values = tensor("x", {60, 4}, x);
    ASSERT_TRUE(write_safetensors(path, {&values, 1}, {}));
  }

  /// Writes a checkpoint of the three ranks, where "w" is 100, 101, ..., and returns its folder.
  /// `held`: rank 2's folder, whose files host c then keeps.
  std::string write_checkpoint(std::int64_t step, const std::string& held = "") {
    const CheckpointStore store(job_.run_dir);
    EXPECT_TRUE(store.begin(step));
    const std::vector<float> w = numbers(100), bias(4, 7);
    std::vector<WrittenFiles> written;
    for (const std::int64_t rank : {0, 1, 2}) {
      const std::int64_t begin = rank == 0 ? 0 : 2 * rank + 1, rows = 3 - rank;
      const auto first = static_cast<std::size_t>(4 * begin),
                 count = static_cast<std::size_t>(rows);
      std::vector<SavedTensor> model = {
          {tensor("w", {rows, 4}, std::span(w).subspan(first, 4 * count)),
           TensorPlace{{6, 4}, {1, begin, 6, 4}}}};
      if (rank == 0) model.push_back({tensor("bias", {4}, bias), {}});
      written.push_back(*store.write_part(step, {static_cast<int>(rank), 3, model, {}}));
    }
    for (const std::string name :
         {"model-00003-of-00003.safetensors", "optimizer-00003-of-00003.safetensors"}) {
      if (held.empty()) continue;
      written[2].held[name] = {"c", held};
      const std::string kept = cache("c") + "/kept/" + held;
      std::filesystem::create_directories(kept);
      std::filesystem::rename(store.half_written(step) + "/" + name, kept + "/" + name);
    }
    const CheckpointState state{
        .step = step, .samples = 6 * step, .global_batch = 6, .model_hash = "m"};
    return store.finish(state, written).value();
  }

  /// Makes a folder in memory, if possible: files are synced one by one, which is slow on disks.
  static std::string make_folder() {
    constexpr const char* kMemory = "/dev/shm/";
    std::string pattern = (::access(kMemory, W_OK) == 0 ? kMemory : ::testing::TempDir());
    pattern += "motley-job-XXXXXX";
    return ::mkdtemp(pattern.data());
  }
  static std::string temporary_folder() {
    const char* folder = ::getenv("TMPDIR");
    return folder == nullptr ? "" : folder;
  }

  static inline std::string files_;
  std::string dir_;  ///< "out" in it is for temporary files
  const std::string usual_ = temporary_folder();
  Job job_;
  std::map<std::string, std::unique_ptr<ForkedAgent>> agents_;
  std::unique_ptr<Hosts> hosts_;
};

}  // namespace motley::run

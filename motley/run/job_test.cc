#include "motley/run/job.h"

#include <gtest/gtest.h>

#include "motley/base/json.h"

namespace motley::run {
namespace {

Job example_job() {
  Job job;
  job.run_dir = "runs/1";
  job.program_path = "runs/1/program.txt";
  job.model_path = "m.motley";
  job.data = {.path = "d.bin", .token_width = 4, .seq = 128};
  job.shuffle = ~std::uint64_t{0};
  job.steps = 20;
  job.seed = std::uint64_t{1} << 63;
  job.checkpoint_every = 5;
  job.resume = false;
  job.timeout = Seconds(12.5);
  job.trace_steps = 3;
  job.kept = "3f0e/91ab";
  job.batches = Batches{.first = 32, .most = 64, .lr_factor = 1.25};
  WorkerDevice plain{.name = "a:0", .kind = "cpu"};
  WorkerDevice emulated{.name = "b:0",
                        .kind = "cpu",
                        .host = "10.0.0.2",
                        .local_index = 1,
                        .threads = 2,
                        .speed = 0.4,
                        .memory = Bytes(1 << 20),
                        .rate = 1.25e8,
                        .latency = 1e-4};
  const WorkerDevice gpu{.name = "c:0", .kind = "cuda", .tf32 = true};
  job.devices = {plain, emulated, gpu};
  return job;
}

TEST(Job, PrintsAndParses) {
  const Job job = example_job();
  const std::string text = job_to_json(job).dump(2);
  const auto json = parse_json(text, "job.json");
  ASSERT_TRUE(json.has_value());
  const auto again = job_from_json(*json, "job.json");
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(*again, job);
}

std::string refusal(void (*change)(Json&)) {
  Json json = job_to_json(example_job());
  change(json);
  const auto job = job_from_json(json, "job.json");
  EXPECT_FALSE(job.has_value());
  return job ? "" : job.error().message;
}

TEST(Job, RefusesOtherVersion) {
  EXPECT_EQ(refusal([](Json& json) { json["schema"] = "motley.job/9"; }),
            "job.json: found schema 'motley.job/9', wanted 'motley.job/1'; write it with the "
            "motley of the same version");
}

TEST(Job, RefusesBadValues) {
  EXPECT_EQ(refusal([](Json& json) { json["seed"] = -1; }),
            "job.json: key 'seed': found -1, wanted an integer from 0 on");
  EXPECT_EQ(refusal([](Json& json) { json["devices"] = Json::array(); }),
            "job.json: key 'devices': wanted a list of at least one device");
  EXPECT_EQ(refusal([](Json& json) { json["devices"][1]["speed"] = 2.0; }),
            "job.json: devices[1]: device 'b:0' has a value out of range, wanted kind cpu or cuda, "
            "threads >= 1, speed in (0, 1], memory, rate > 0, latency >= 0");
  EXPECT_EQ(refusal([](Json& json) { json["timeout_s"] = 0; }),
            "job.json: wanted steps, checkpoint_every, trace_steps >= 0 and timeout_s > 0");
}

TEST(Event, PrintsAndParsesOneLine) {
  const WorkerEvent event{"step", 2, Json{{"step", 7}, {"loss", 0.5}, {"note", "a\nb\xff"}}};
  const std::string line = print_event(event);
  EXPECT_EQ(
      line,
      "{\"event\":\"step\",\"rank\":2,\"step\":7,\"loss\":0.5,\"note\":\"a\\nb\xEF\xBF\xBD\"}");
  const auto again = parse_event(line);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->event, "step");
  EXPECT_EQ(again->rank, 2);
  EXPECT_EQ(again->fields["step"], 7);
  EXPECT_FALSE(again->fields.contains("rank"));
}

TEST(ErrorKindName, IsInvertible) {
  for (const ErrorKind kind : {ErrorKind::kUsage, ErrorKind::kInfeasible, ErrorKind::kStale,
                               ErrorKind::kCheck, ErrorKind::kRuntime})
    EXPECT_EQ(find_error_kind(error_kind_name(kind)), kind);
  EXPECT_EQ(find_error_kind("odd"), std::nullopt);
}

}  // namespace
}  // namespace motley::run

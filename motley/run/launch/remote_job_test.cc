#include "motley/run/launch/remote_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "motley/base/safetensors.h"
#include "motley/data/dataset.h"
#include "motley/data/excerpt.h"
#include "motley/graph/model_file.h"
#include "motley/program/program_text.h"
#include "motley/run/checkpoints/held_parts.h"
#include "motley/run/checkpoints/rank_files.h"
#include "motley/run/hosts/here.h"
#include "motley/testing/launched_ranks.h"
#include "motley/testing/placed_job.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;

using SeatPlaces = std::vector<std::pair<std::string, std::string>>;
SeatPlaces seat_places(const std::vector<Seat>& seats) {
  SeatPlaces places;
  for (const Seat& seat : seats) places.emplace_back(seat.agent, seat.job);
  return places;
}

class RemoteJobTest : public PlacedJob {
 protected:
  Result<std::vector<Seat>> place() { return place_job(*hosts_, dir_ + "/run/job.json", job_); }
  std::vector<Seat> placed() {
    const auto placed = place();
    EXPECT_TRUE(placed) << placed.error().message;
    return placed.value_or(std::vector<Seat>());
  }
  SeatPlaces::value_type seat_on(const std::string& host) {
    return {host, scratch(host) + "/run/job.json"};
  }
  Error place_error() {
    const auto placed = place();
    EXPECT_FALSE(placed);
    return placed ? Error{} : placed.error();
  }
  /// Returns the samples that a host got of a file, "data" or "eval-data".
  std::set<std::int64_t> samples_there(const data::DataSource& source) {
    const auto opened = data::open_dataset(source, {{"x", DType::kF32, {4}}});
    EXPECT_TRUE(opened) << opened.error().message;
    std::set<std::int64_t> found;
    for (std::int64_t i = 0; opened && i < (*opened)->samples(); ++i) {
      if (!(*opened)->has(i)) continue;
      float values[4];
      (*opened)->read(0, i, reinterpret_cast<std::byte*>(values));
      EXPECT_EQ(values[0], static_cast<float>(4 * i));
      found.insert(i);
    }
    return found;
  }
  std::vector<float> weights_there(const std::string& host, int rank, std::int64_t rows) {
    const auto weights = read_rank_weights(RankFolder(scratch(host) + "/run/ranks", rank));
    EXPECT_TRUE(weights) << weights.error().message;
    const std::int64_t begin = rank == 1 ? 3 : 5;
    std::vector<float> values(static_cast<std::size_t>(4 * rows), -1);
    const program::Buffer buffer{.kind = program::BufferKind::kParameter,
                                 .shape = {rows, 4},
                                 .name = "w",
                                 .part = program::Part{1, begin, 6, 4}};
    EXPECT_TRUE(weights->tensors.read(buffer, std::as_writable_bytes(std::span(values))));
    return values;
  }
  void let_plans_change(bool is_elastic = true) {
    job_.changes = Changes{.is_elastic = is_elastic, .keys = StoreAddress{"", 7777, "a word"}};
  }
  std::map<std::string, fs::file_time_type> kept_files(const std::string& host) {
    settle(host);
    std::map<std::string, fs::file_time_type> files;
    for (const auto& each : fs::directory_iterator(cache(host) + "/files"))
      files[each.path().filename()] = each.last_write_time();
    return files;
  }
  bool is_on(const std::string& host, const std::string& path) {
    settle(host);
    return fs::exists(scratch(host) + "/" + path);
  }
};

TEST_F(RemoteJobTest, RanksOfThisMachineNeedNobody) {
  for (WorkerDevice& device : job_.devices) device.host = "";
  job_.kept = "run-1";
  EXPECT_EQ(seat_places(placed()), SeatPlaces(3, {"", dir_ + "/run/job.json"}));
  EXPECT_FALSE(job_.store);  // they share the run directory
  EXPECT_EQ(job_.kept, "");  // and the checkpoint is whole there
}

TEST_F(RemoteJobTest, EachRankIsSeatedOnItsHost) {
  job_.devices.push_back({.name = "b:1", .kind = "cpu", .host = "b"});
  job_.program_path = "";  // for example, they measure
  come("b");
  come("c");
  EXPECT_EQ(seat_places(placed()),
            (SeatPlaces{{"", dir_ + "/run/job.json"}, seat_on("b"), seat_on("c"), seat_on("b")}));
}

TEST_F(RemoteJobTest, AHostThatDoesNotAnswerIsNamed) {
  come("b");
  const Error error = place_error();
  EXPECT_EQ(error.code, "host.unreachable");
  EXPECT_EQ(error.message.rfind("host c: the connection ended; tried: false;", 0), 0U)
      << error.message;
}

TEST_F(RemoteJobTest, AHostThatIsLostMeanwhileIsNamed) {
  come("b");
  come("c");
  agents_["c"]->kill();
  const Error error = place_error();
  EXPECT_EQ(error.code, "host.lost");
  EXPECT_EQ(error.message.rfind("host c: ", 0), 0U) << error.message;
}

// Everything but its paths is as here. Its data is an excerpt.
TEST_F(RemoteJobTest, AHostHasTheJobWithItsPlacesThere) {
  job_.seed = 5;
  job_.shuffle = 3;
  come("b");
  come("c");
  placed();
  const std::string run = scratch("c") + "/run";
  Job there = job_;
  there.run_dir = run;
  there.rank_files = run + "/ranks";
  there.model_path = run + "/in/model/model.safetensors";
  there.data = {.path = run + "/in/data/data.safetensors.excerpt"};
  EXPECT_EQ(job_to_json(job_on("c")), job_to_json(there));
  EXPECT_TRUE(is_on("c", "run/status"));
}

TEST_F(RemoteJobTest, ARankElsewhereHasItsProgramItsRowsAndTheModelWithoutTensors) {
  come("b");
  come("c");
  placed();
  const auto program = program::parse_program(program_text(), "program").value();
  const RankFolder own(job_on("c").rank_files, 2);
  EXPECT_EQ(read_file(own.program()).value(),
            program::print_program(program::own_program(program, Rank(2))));
  const auto weights = read_rank_weights(own);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->tensors.names(), std::vector<std::string>{"w"});  // all else comes from rank 0
  EXPECT_EQ(weights->step, 0);
  EXPECT_EQ(weights->model_file, hash_model_file(job_.model_path).value());
  // Rows 3 and 4 of four numbers each, and row 5.
  EXPECT_EQ(weights_there("b", 1, 2), (std::vector<float>{12, 13, 14, 15, 16, 17, 18, 19}));
  EXPECT_EQ(weights_there("c", 2, 1), (std::vector<float>{20, 21, 22, 23}));
  EXPECT_FALSE(is_on("c", "run/ranks/rank-1") || is_on("c", "run/ranks/rank-0"));
  const auto model = graph::read_model(job_on("c").model_path);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->graph.name, "small");
  EXPECT_TRUE(Safetensors::open(job_on("c").model_path)->tensors().empty());
}

// Of each of four batches of 6, rank 1 takes places 3 and 4, and rank 2 the last one.
TEST_F(RemoteJobTest, EachHostHasTheSamplesThatItsRanksRead) {
  come("b");
  come("c");
  placed();
  EXPECT_EQ(samples_there(job_on("b").data), (std::set<std::int64_t>{3, 4, 9, 10, 15, 16, 21, 22}));
  EXPECT_EQ(samples_there(job_on("c").data), (std::set<std::int64_t>{5, 11, 17, 23}));
}

// From step 3 on, the only one left of four.
TEST_F(RemoteJobTest, WhoGoesOnIsSentWhatIsLeftUnlessItHasAll) {
  write_checkpoint(3);
  come("b");
  job_.devices[2].host = "b";
  placed();
  EXPECT_EQ(samples_there(job_on("b").data), (std::set<std::int64_t>{21, 22, 23}));
  fs::remove_all(job_.run_dir + "/checkpoint");
  placed();
  const std::set<std::int64_t> all = {3, 4, 5, 9, 10, 11, 15, 16, 17, 21, 22, 23};
  EXPECT_EQ(samples_there(job_on("b").data), all);
  write_checkpoint(3);
  placed();
  EXPECT_EQ(samples_there(job_on("b").data), all);
}

TEST_F(RemoteJobTest, WhatAHostKeepsIsNotSentAgain) {
  job_.devices[0].host = "b";  // its model file is whole
  come("b");
  come("c");
  placed();
  const auto first = kept_files("b");
  EXPECT_EQ(first.size(), 2U);  // the model and an excerpt
  placed();
  EXPECT_EQ(kept_files("b"), first);
  // Different content is sent again.
  job_.model_path = dir_ + "/small.motley";
  write_model(job_.model_path, 1);
  placed();
  EXPECT_EQ(kept_files("b").size(), 3U);
  EXPECT_EQ(read_file(job_on("b").model_path).value(), read_file(job_.model_path).value());
}

TEST_F(RemoteJobTest, FilesThatAreWrittenToBeSentAreGone) {
  come("b");
  come("c");
  placed();
  EXPECT_TRUE(fs::is_empty(dir_ + "/out"));
}

TEST_F(RemoteJobTest, TheHostOfRankZeroHasTheModelAndTheCheckpoint) {
  const std::string checkpoint = write_checkpoint(2);
  std::swap(job_.devices[0].host, job_.devices[1].host);  // b, here, c
  come("b");
  come("c");
  EXPECT_EQ(seat_places(placed()),
            (SeatPlaces{seat_on("b"), {"", dir_ + "/run/job.json"}, seat_on("c")}));
  const Job there = job_on("b");
  EXPECT_EQ(there.model_path, scratch("b") + "/run/in/model/small.motley");
  EXPECT_EQ(read_file(there.model_path).value(), read_file(job_.model_path).value());
  EXPECT_FALSE(fs::exists(RankFolder(there.rank_files, 0).weights()));
  const auto latest = CheckpointStore(there.run_dir).open_latest();
  ASSERT_TRUE(latest && *latest);
  EXPECT_EQ((*latest)->state.step, 2);
  EXPECT_EQ(fs::read_symlink(there.run_dir + "/checkpoint/latest"),
            fs::path(checkpoint).filename());
  // The others continue from their rows of it.
  EXPECT_FALSE(is_on("c", "run/checkpoint"));
  EXPECT_EQ(weights_there("c", 2, 1), (std::vector<float>{120, 121, 122, 123}));
}

TEST_F(RemoteJobTest, WhoBeginsAnewIsGivenNoCheckpoint) {
  write_checkpoint(2);
  job_.resume = false;
  job_.devices[0].host = "b";
  come("b");
  come("c");
  placed();
  EXPECT_FALSE(is_on("b", "run/checkpoint"));
  EXPECT_EQ(weights_there("c", 2, 1), (std::vector<float>{20, 21, 22, 23}));
}

TEST_F(RemoteJobTest, RanksMeetAtTheCoordinatorWhereRankZeroIsHere) {
  come("b");
  come("c");
  placed();
  ASSERT_TRUE(job_.store);
  EXPECT_EQ(job_.store->address, "127.0.0.1");  // as b sees it
  EXPECT_GT(job_.store->port, 0);
  EXPECT_EQ(job_.store->secret.size(), 32U);
  for (const char* host : {"b", "c"}) EXPECT_EQ(job_on(host).store, job_.store);
}

TEST_F(RemoteJobTest, RanksMeetOnTheHostOfRankZero) {
  std::swap(job_.devices[0].host, job_.devices[2].host);  // c, b, here
  come("b");
  come("c");
  placed();
  ASSERT_TRUE(job_.store);
  EXPECT_EQ(job_.store->address, "127.0.0.2");  // c as the coordinator sees it
  EXPECT_GT(job_.store->port, 0);
  EXPECT_EQ(job_on("b").store, job_.store);
}

TEST_F(RemoteJobTest, ASingleRankMeetsNobody) {
  job_.devices = {job_.devices[1]};
  job_.program_path = "";
  come("b");
  placed();
  EXPECT_FALSE(job_.store);
}

/// Expects that `who` could not connect, at any port.
void expect_no_way(const Error& error, const std::string& who) {
  EXPECT_EQ(error.kind, ErrorKind::kRuntime);
  EXPECT_EQ(error.code, "host.wire");
  std::string message = error.message;
  const std::string before = who + "no connection to 255.255.255.255 port ";
  ASSERT_EQ(message.rfind(before, 0), 0U) << message;
  message.erase(0, before.size());
  message.erase(0, message.find(':'));
  EXPECT_EQ(message, ": Network is unreachable; a firewall may let ssh through and no other port");
}

// Nobody can connect to a broadcast address.
TEST_F(RemoteJobTest, AHostThatCannotConnectToTheCoordinatorIsNamed) {
  come("b", "255.255.255.255");
  come("c");
  expect_no_way(place_error(), "host b: ");
}

TEST_F(RemoteJobTest, ACoordinatorThatCannotConnectToTheHostOfRankZeroSaysSo) {
  std::swap(job_.devices[0].host, job_.devices[1].host);  // b, here, c
  Hosts::Reached b = start("b").give();
  b.hello["ssh_connection"] = "127.0.0.1 40000 255.255.255.255 22";
  hosts_->take_in("b", std::move(b));
  come("c");
  expect_no_way(place_error(), "");
  job_.devices[1].host = "c";  // no rank is here any more
  expect_no_way(place_error(), "host c: ");
}

TEST_F(RemoteJobTest, WherePlansMayChangeEachHostMustConnectToTheCoordinator) {
  let_plans_change();
  come("b");
  come("c", "255.255.255.255");
  expect_no_way(place_error(), "host c: ");
}

TEST_F(RemoteJobTest, WhatIsNoFileMustBeThere) {
  job_.data.path = dir_ + "/samples";
  come("b");
  come("c");
  const Error error = place_error();
  EXPECT_EQ(error.kind, ErrorKind::kUsage);
  EXPECT_EQ(error.code, "host.data");
  EXPECT_EQ(error.message, "host b: " + dir_ +
                               "/samples is not there; folders and what Python loads must lie at "
                               "the same path on every host");
  fs::create_directory(dir_ + "/samples");
  placed();
  EXPECT_EQ(job_on("b").data, job_.data);
  // A Python file is not sent.
  job_.data = {.path = dir_ + "/data.py", .function = "make"};
  EXPECT_EQ(place_error().code, "host.data");
  std::ofstream(job_.data.path) << "def make(): pass\n";
  placed();
  EXPECT_EQ(job_on("b").data, job_.data);
}

TEST_F(RemoteJobTest, WhatItIsEvaluatedWithMustBeThereToo) {
  job_.evaluation = EvaluationJob{.data = {.path = dir_ + "/other"}, .samples = 12};
  come("b");
  come("c");
  EXPECT_EQ(place_error().message, "host b: " + dir_ +
                                       "/other is not there; folders and what Python loads must "
                                       "lie at the same path on every host");
}

// Twelve samples are two batches of 6: those of training, repeated.
TEST_F(RemoteJobTest, ARankHasItsEvaluationsAndTheirSamples) {
  write_data(dir_ + "/held-out.safetensors");
  job_.evaluation = EvaluationJob{.data = {.path = dir_ + "/held-out.safetensors"},
                                  .samples = 12,
                                  .programs = {job_.program_path}};
  come("b");
  come("c");
  placed();
  const Job there = job_on("c");
  EXPECT_EQ(there.evaluation->data.path,
            there.run_dir + "/in/eval-data/held-out.safetensors.excerpt");
  EXPECT_EQ(samples_there(there.evaluation->data), (std::set<std::int64_t>{5, 11}));
  const RankFolder own(there.rank_files, 2);
  EXPECT_EQ(read_file(own.evaluation(0)).value(), read_file(own.program()).value());
}

TEST_F(RemoteJobTest, WherePlansMayChangeAHostHasAllOfIt) {
  let_plans_change(false);
  job_.kept = "run-1";
  job_.evaluation =
      EvaluationJob{.data = job_.data, .samples = 12, .programs = {job_.program_path}};
  write_checkpoint(2);
  come("b");
  come("c", "127.0.0.3");
  placed();
  EXPECT_FALSE(job_.store);
  EXPECT_EQ(job_.kept, "");
  EXPECT_EQ(*job_.changes->keys, (StoreAddress{"127.0.0.1", 7777, "a word"}));
  const Job there = job_on("c");
  EXPECT_EQ(*there.changes->keys, (StoreAddress{"127.0.0.3", 7777, "a word"}));  // as c sees it
  EXPECT_EQ(there.rank_files, "");
  EXPECT_EQ(there.program_path, there.run_dir + "/in/program.txt");
  EXPECT_EQ(there.evaluation->programs[0], there.run_dir + "/in/evaluation-0.txt");
  for (const std::string& path : {there.program_path, there.evaluation->programs[0]})
    EXPECT_EQ(read_file(path).value(), program_text());
  EXPECT_EQ(there.model_path, there.run_dir + "/in/model/small.motley");
  EXPECT_EQ(read_file(there.model_path).value(), read_file(job_.model_path).value());
  const auto latest = CheckpointStore(there.run_dir).open_latest();
  ASSERT_TRUE(latest && *latest);
  EXPECT_EQ((*latest)->state.step, 2);
  // Any rank may be placed there: all samples of the two steps left, and of the evaluation.
  EXPECT_EQ(samples_there(there.data).size(), 12U);
  EXPECT_EQ(*samples_there(there.data).begin(), 12);
  EXPECT_EQ(samples_there(there.evaluation->data).size(), 12U);
}

// Two steps of 6 samples, the last of which may have 9: at most 2 * 6 + 9 = 21 samples are started,
// in four batches of 6.
TEST_F(RemoteJobTest, WhereBatchesChangeAHostHasWhatAnyOfThemMayTake) {
  let_plans_change();
  job_.steps = 2;
  job_.batches = Batches{.first = 6, .most = 9};
  come("b");
  come("c");
  placed();
  const std::set<std::int64_t> found = samples_there(job_on("b").data);
  EXPECT_EQ(found.size(), 24U);
  EXPECT_EQ(*found.rbegin(), 23);
}

TEST_F(RemoteJobTest, AHostWhoseDevicesAreAbsentNeedNotAnswer) {
  let_plans_change();
  job_.changes->absent = {"c:0"};
  come("b");
  EXPECT_EQ(seat_places(placed()),
            (SeatPlaces{{"", dir_ + "/run/job.json"}, seat_on("b"), {"c", ""}}));
  come("c");  // once it answers it gets the job
  EXPECT_EQ(seat_places(placed())[2], seat_on("c"));
}

TEST_F(RemoteJobTest, RanksKeepTheirPartsInAFolderOfTheirCut) {
  job_.kept = "run-1";
  const auto program = program::parse_program(program_text(), "program").value();
  const std::string kept = kept_name("run-1", program, job_);
  come("b");
  come("c");
  placed();
  EXPECT_EQ(job_.kept, kept);
  EXPECT_EQ(job_on("c").kept, cache("c") + "/kept/" + kept);
}

TEST_F(RemoteJobTest, ARankIsToldWhichFilesItsHostKeeps) {
  job_.kept = "run-1";
  const auto program = program::parse_program(program_text(), "program").value();
  const std::string folder = kept_name("run-1", program, job_) + "/rank-2/step-00000002";
  const std::string checkpoint = write_checkpoint(2, folder);
  come("b");
  come("c");
  placed();
  settle("c");
  EXPECT_EQ(weights_there("c", 2, 1), (std::vector<float>{120, 121, 122, 123}));
  const RankFolder own(job_on("c").rank_files, 2);
  EXPECT_TRUE(fs::exists(own.held()));
  EXPECT_TRUE(Safetensors::open(own.weights())->tensors().empty());  // nothing of it was sent
  EXPECT_FALSE(is_on("b", "run/ranks/rank-1/held.json"));
  EXPECT_FALSE(fs::exists(checkpoint + "/model-00003-of-00003.safetensors"));
}

TEST_F(RemoteJobTest, PartsOfAnotherCutAreBroughtFirst) {
  job_.kept = "run-1";
  const std::string checkpoint = write_checkpoint(2, "run-1/another/rank-2/step-00000002");
  come("b");
  come("c");
  placed();
  EXPECT_TRUE(fs::exists(checkpoint + "/model-00003-of-00003.safetensors"));
  EXPECT_FALSE(is_on("c", "run/ranks/rank-2/held.json"));
  EXPECT_EQ(weights_there("c", 2, 1), (std::vector<float>{120, 121, 122, 123}));
}

TEST_F(RemoteJobTest, MissingPartsAreNamed) {
  job_.kept = "run-1";
  const std::string folder = "run-1/another/rank-2/step-00000002";
  write_checkpoint(2, folder);
  come("b");
  come("c");
  fs::remove_all(cache("c") + "/kept");
  const Error error = place_error();
  EXPECT_EQ(error.code, "run.held");
  const std::string name = "model-00003-of-00003.safetensors";
  EXPECT_EQ(error.message, "host c keeps " + name + ", optimizer-00003-of-00003.safetensors: " +
                               folder + "/" + name + " is missing");
}

/// A job on hosts b and c whose plan may change.
class ChangingJobTest : public RemoteJobTest {
 protected:
  void SetUp() override {
    RemoteJobTest::SetUp();
    let_plans_change();
    come("b");
    come("c", "127.0.0.3");
    placed();
    before_ = job_on("c");
  }
  Job before_;  // as c has it
};

TEST_F(ChangingJobTest, AnotherCoordinatorTellsHostsWhereItsProcessesMeet) {
  job_.changes->keys = StoreAddress{"", 8888, "another word"};
  job_.devices.push_back({.name = "d:0", .kind = "cpu", .host = "d"});
  const auto seats = find_job(*hosts_, job_);
  ASSERT_TRUE(seats) << seats.error().message;
  EXPECT_EQ(seat_places(*seats), (SeatPlaces{{"", ""}, seat_on("b"), seat_on("c"), {"d", ""}}));
  before_.changes->keys = StoreAddress{"127.0.0.3", 8888, "another word"};
  before_.devices.push_back(job_.devices[3]);
  EXPECT_EQ(job_to_json(job_on("c")), job_to_json(before_));
}

TEST_F(ChangingJobTest, NamesAHostWhoseJobIsMissing) {
  settle("c");
  fs::remove_all(scratch("c") + "/run");
  const auto seats = find_job(*hosts_, job_);
  ASSERT_FALSE(seats);
  EXPECT_EQ(seats.error().code, "run.job");
  EXPECT_EQ(seats.error().message, "host c: job.json is missing");
}

TEST_F(ChangingJobTest, AHostIsToldOfItsDevices) {
  job_.devices.push_back({.name = "b:1", .kind = "cpu", .host = "b"});
  job_.devices.push_back({.name = "c:1", .kind = "cpu", .host = "c", .threads = 2});
  ASSERT_TRUE(place_device(*hosts_, job_, 4));
  EXPECT_EQ(job_on("c").devices, job_.devices);  // including those in between
  job_.devices[2].threads = 7;
  job_.devices[1].threads = 9;
  ASSERT_TRUE(place_device(*hosts_, job_, 2));
  EXPECT_EQ(job_on("c").devices[2].threads, 7);
  EXPECT_EQ(job_on("c").devices[1].threads, 1);  // another rank's device is unchanged
  EXPECT_EQ(job_on("c").data, before_.data);
  EXPECT_EQ(job_on("b").devices.size(), 3U);
}

TEST_F(ChangingJobTest, WhoHasNotTheJobIsToldOfNoDevice) {
  job_.devices.push_back({.name = "d:0", .kind = "cpu", .host = "d"});
  EXPECT_TRUE(place_device(*hosts_, job_, 0));
  EXPECT_TRUE(place_device(*hosts_, job_, 3));
  EXPECT_EQ(job_to_json(job_on("c")), job_to_json(before_));
}

TEST_F(ChangingJobTest, AHostThatHasComeBackIsGivenTheJobWithoutACheckpoint) {
  write_checkpoint(2);
  hosts_->take_in("c", start("new").give());  // replaces the lost agent
  Hosts::Reached reached = start("c").give("127.0.0.4");
  const auto path = place_again(*hosts_, "c", reached, job_);
  ASSERT_TRUE(path) << path.error().message;
  EXPECT_EQ(*path, reached.link->scratch() + "/run/job.json");
  hosts_->take_in("c", std::move(reached));
  const Job there = job_on("c");
  EXPECT_FALSE(there.resume);  // it receives what the others have
  EXPECT_FALSE(is_on("c", "run/checkpoint"));
  EXPECT_EQ(there.changes->keys->address, "127.0.0.4");
  EXPECT_EQ(there.changes->keys->port, 7777);
  EXPECT_EQ(read_file(there.program_path).value(), program_text());
  EXPECT_EQ(samples_there(there.data).size(), 24U);
}

TEST_F(ChangingJobTest, AHostThatHasComeBackMustConnectToo) {
  Hosts::Reached reached = start("d").give("255.255.255.255");
  const auto path = place_again(*hosts_, "d", reached, job_);
  ASSERT_FALSE(path);
  expect_no_way(path.error(), "host d: ");
}

TEST_F(ChangingJobTest, ACheckpointLiesThereByItsFolder) {
  const std::string checkpoint = write_checkpoint(2);
  EXPECT_EQ(checkpoint_there(checkpoint), "run/checkpoint/step-00000002");
  ASSERT_TRUE(place_checkpoint(hosts_->on("c"), checkpoint));
  settle("c");
  const auto opened = open_checkpoint(scratch("c") + "/" + checkpoint_there(checkpoint));
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->state.step, 2);
  ASSERT_TRUE(place_checkpoint(hosts_->on("c"), dir_ + "/none"));  // sends nothing
}

TEST_F(ChangingJobTest, TracesOfAllHostsComeIntoTheJobs) {
  job_.devices.push_back({.name = "d:0", .kind = "cpu", .host = "d"});  // it never came
  for (const std::string host : {"b", "c"}) {
    fs::create_directories(scratch(host) + "/run/trace");
    std::ofstream(scratch(host) + "/run/trace/" + host + ".json") << "of " << host;
  }
  const auto come = bring_traces(*hosts_, job_);
  ASSERT_TRUE(come) << come.error().message;
  for (const std::string host : {"b", "c"})
    EXPECT_EQ(read_file(job_.run_dir + "/trace/" + host + ".json").value(), "of " + host);
}

TEST_F(ChangingJobTest, OnlyAnElasticJobLosesTheTracesOfALostHost) {
  fs::create_directories(scratch("c") + "/run/trace");
  std::ofstream(scratch("c") + "/run/trace/c.json") << "of c";
  agents_["b"]->kill();
  ASSERT_TRUE(bring_traces(*hosts_, job_));
  EXPECT_TRUE(fs::exists(job_.run_dir + "/trace/c.json"));
  job_.changes->is_elastic = false;
  const auto come = bring_traces(*hosts_, job_);
  ASSERT_FALSE(come);
  EXPECT_EQ(come.error().code, "host.lost");
  EXPECT_EQ(come.error().message.rfind("host b: ", 0), 0U) << come.error().message;
}

TEST_F(RemoteJobTest, TheModelsOfTheCheckpointsHereArePublished) {
  EXPECT_TRUE(publish_models(job_));  // there is none
  EXPECT_FALSE(fs::exists(job_.run_dir + "/model.safetensors"));
  const CheckpointStore store(job_.run_dir);
  const auto write = [&](std::int64_t step, float value) {
    const std::vector<float> w(24, value), average(24, value + 0.5F), bias(4);
    const SavedTensor model[] = {{tensor("w", {6, 4}, w), {}}, {tensor("bias", {4}, bias), {}}};
    const SavedTensor state = {tensor("w/average", {6, 4}, average), {}};
    return store
        .write({.step = step,
                .samples = 6 * step,
                .global_batch = 6,
                .model_hash = "m",
                .best = Best{.value = 1, .step = 2}},
               {0, 1, model, {&state, 1}})
        .value();
  };
  ASSERT_TRUE(store.keep_best(write(2, 2)));
  write(4, 4);
  const auto published = publish_models(job_);
  ASSERT_TRUE(published) << published.error().message;
  const auto first = [&](const std::string& name) {
    const auto file = Safetensors::open(job_.run_dir + "/" + name).value();
    return *reinterpret_cast<const float*>(file.tensors().at("w").bytes.data());
  };
  EXPECT_EQ(first("model.safetensors"), 4);
  EXPECT_EQ(first("model_best.safetensors"), 2);
  EXPECT_EQ(first("model_average.safetensors"), 4.5);
}

TEST_F(RemoteJobTest, NoModelIsPublishedOfACheckpointWhosePartsHostsKeep) {
  write_checkpoint(2, "run-1/cut/rank-2");
  EXPECT_TRUE(publish_models(job_));
  EXPECT_FALSE(fs::exists(job_.run_dir + "/model.safetensors"));
}

// Two devices here, where rank 1 is another agent, and three where ranks 2 and 3 are: each rank
// goes to the agent with the fewest. A machine's first agent has the files; the others use its run
// directory.
TEST_F(RemoteJobTest, RanksOfALauncherShareTheDevicesOfTheirMachine) {
  const std::string there = "203.0.113.2";  // an address that nobody has (RFC 5737)
  job_.program_path = "";
  job_.devices.clear();
  for (const std::string& host : {std::string(), std::string(), there, there, there})
    job_.devices.push_back({.name = "d", .kind = "cpu", .host = host});
  fs::create_directory(dir_ + "/launched");
  LaunchedRanks ranks(dir_ + "/launched");
  const auto hello = [](const std::string& machine, const std::string& scratch) {
    return Json{{"motley", ""}, {"torch", ""}, {"machine", machine}, {"scratch", scratch}};
  };
  const ScriptedAgent::Answers answers = {
      {"names",
       [](const Json&) {
         return Json{{"is", "names"}, {"here", Json::array({true})}};
       }},
      {"wire",
       [](const Json&) {
         return Json{{"is", "wire"}, {"id", 0}};
       }},
      {"exists", [](const Json&) {
         return Json{{"is", "exists"}, {"there", true}};
       }}};
  const auto& first = ranks.add("rank 1", hello(machine_identity(), "/one"));
  const auto& second = ranks.add("rank 2", hello("m", "/two"), answers);
  const auto& third = ranks.add("rank 3", hello("m", "/three"));
  ASSERT_TRUE(hosts_->gather(ranks.worker(), 4, 8));
  const auto seats = place();
  ASSERT_TRUE(seats) << seats.error().message;
  const std::string here = dir_ + "/run/job.json", placed = "/two/run/job.json";
  EXPECT_EQ(seat_places(*seats), (SeatPlaces{{"", here},
                                             {"rank 1", here},
                                             {"rank 2", placed},
                                             {"rank 3", placed},
                                             {"rank 2", placed}}));
  hosts_.reset();  // everything sent has been received
  const auto reset_to = [](const std::string& run) {
    return std::vector<Json>{(Json{{"do", "reset"}, {"run", run}})};
  };
  EXPECT_EQ(first.heard(), reset_to(dir_ + "/run"));
  EXPECT_EQ(third.heard(), reset_to("/two/run"));
  std::vector<std::string> done;
  for (const Json& each : second.heard()) done.push_back(each["do"]);
  EXPECT_EQ(done, (std::vector<std::string>{"names", "wire", "reset", "write", "exists"}));
}

}  // namespace
}  // namespace motley::run

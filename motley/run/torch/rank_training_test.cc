#include "motley/run/torch/rank_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <torch/library.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <ostream>
#include <set>
#include <stdexcept>
#include <thread>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/random.h"
#include "motley/program/commit.h"
#include "motley/program/program_text.h"
#include "motley/run/checkpoints/rank_files.h"
#include "motley/run/hosts/here.h"
#include "motley/run/input_specs.h"
#include "motley/testing/training_ranks.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using End = RankTraining::End;
using FloatsByName = std::map<std::string, std::vector<float>>;

template <typename T>
std::string fault_of(const Result<T>& result) {
  if (result) return "";
  const Error& error = result.error();
  return fmt::format("{} {}: {}", error_kind_name(error.kind), error.code, error.message);
}

FloatsByName floats_of_file(const std::string& path) {
  const auto file = Safetensors::open(path);
  EXPECT_TRUE(file) << fault_of(file);
  FloatsByName found;
  if (!file) return found;
  for (const auto& [name, view] : file->tensors()) {
    std::vector<float>& floats = found[name];
    floats.resize(view.bytes.size() / sizeof(float));
    std::memcpy(floats.data(), view.bytes.data(), view.bytes.size());
  }
  return found;
}

FloatsByName floats_of(const std::map<std::string, at::Tensor>& tensors) {
  FloatsByName found;
  for (const auto& [name, tensor] : tensors) {
    const float* first = tensor.const_data_ptr<float>();
    found[name] = {first, first + tensor.numel()};
  }
  return found;
}

/// Float32 and the order of sums cause differences in the sixth digit.
void expect_like(const std::vector<float>& found, const testing::Tensor& wanted,
                 const std::string& what) {
  ASSERT_EQ(found.size(), wanted.at.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], wanted.at[i], 1e-5 * std::max(1.0, std::abs(wanted.at[i])))
        << what << " at " << i;
}

const std::vector<std::string> kParameters = {"net.0.bias", "net.0.weight", "net.2.bias",
                                              "net.2.weight"};

void expect_weights(const FloatsByName& found, const DirectTraining& wanted) {
  for (const std::string& name : kParameters)
    expect_like(found.at(name), wanted.weight(name), name);
}

void expect_losses(const std::vector<double>& found, const std::vector<double>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], wanted[i], 1e-5 * std::max(1.0, wanted[i])) << "step " << i;
}

std::string path_of(const std::string& run_dir, std::int64_t step) {
  return fmt::format("{}/checkpoint/step-{:08}", run_dir, step);
}

void await(const std::function<bool()>& is_so) {
  for (int look = 0; look < 10000 && !is_so(); ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(is_so()) << "within 10 s";
}

class RankTrainingTest : public TrainingTest {
 protected:
  Voices train(const Job& job, const SmallPrograms& programs, End wanted = End::kFinished) {
    return run_ranks(job, programs, [&](WorkerSession& session, const Reporter& reporter) {
      const auto training = RankTraining::open(session, reporter);
      ASSERT_TRUE(training) << fault_of(training);
      const auto end = (*training)->run();
      ASSERT_TRUE(end) << fault_of(end);
      EXPECT_EQ(*end, wanted);
    });
  }
  Voices train(const SmallSplit& split, std::int64_t steps) {
    const SmallPrograms programs = lower_small(model_, split);
    return train(small_job(dir_, programs, steps), programs);
  }
  /// Returns errors by rank of a training that `prepare` modified.
  std::vector<std::string> faults(const Job& job, const SmallPrograms& programs,
                                  const std::function<void(WorkerSession&)>& prepare = nullptr) {
    std::vector<std::string> found(job.devices.size());
    run_ranks(job, programs, [&](WorkerSession& session, const Reporter& reporter) {
      if (prepare) prepare(session);
      std::string& fault = found[static_cast<std::size_t>(session.rank)];
      const auto training = RankTraining::open(session, reporter);
      fault = fault_of(training);
      if (!training) return;
      fault = fault_of((*training)->run());
    });
    return found;
  }
  std::string fault_alone(const Job& job, const SmallPrograms& programs) {
    return faults(job, programs).front();
  }
  std::string run_dir() const { return dir_ + "/run"; }
  std::string published() const { return run_dir() + "/model.safetensors"; }
  DirectTraining direct() const { return DirectTraining(model_); }
};

// --- what is trained -----------------------------------------------------------------------------

TEST_F(RankTrainingTest, OneRankTrainsWhatItsGraphSays) {
  const Voices voices = train({{4}}, 4);
  // 16 samples: the last five are again the first of eleven.
  const DirectTraining wanted = direct().run(4, 4);
  expect_losses(voices[0]->losses(), wanted.losses);
  expect_weights(floats_of_file(published()), wanted);
  const FloatsByName states = floats_of_file(path_of(run_dir(), 4) + "/optimizer.safetensors");
  for (const std::string& name : kParameters)
    expect_like(states.at(name + "/momentum"), wanted.momenta.at(name), name);
  EXPECT_THAT(voices[0]->names(),
              ElementsAre("ready", "step", "step", "step", "step", "checkpoint", "done"));
  const Json ready = voices[0]->events("ready").at(0);
  EXPECT_EQ(ready, (Json{{"event", "ready"},
                         {"rank", 0},
                         {"first_step", 0},
                         {"device", "a:0"},
                         {"leads", true},
                         {"memory_limit", nullptr}}));
  EXPECT_EQ(voices[0]->events("checkpoint").at(0).at("path"), path_of(run_dir(), 4));
  EXPECT_EQ(voices[0]->events("done").at(0).at("reason"), "finished");
  EXPECT_EQ(voices[0]->events("done").at(0).at("steps"), 4);
}

TEST_F(RankTrainingTest, WhatNoOperatorUsesIsSavedAsItCame) {
  train({{4}}, 1);
  EXPECT_THAT(floats_of_file(published()).at("note"), ElementsAre(3, 4));
}

struct Sharing {
  const char* name;
  SmallSplit split;
  std::string transport = "auto";
};
void PrintTo(const Sharing& sharing, std::ostream* out) { *out << sharing.name; }

class TrainsIdentical : public RankTrainingTest, public ::testing::WithParamInterface<Sharing> {};

TEST_P(TrainsIdentical, UnderAnySplit) {
  const SmallPrograms programs = lower_small(model_, GetParam().split);
  Job job = small_job(dir_, programs, 5);
  job.transport = GetParam().transport;
  const Voices voices = train(job, programs);
  const DirectTraining wanted = direct().run(5, 4);
  expect_weights(floats_of_file(published()), wanted);
  for (std::size_t rank = 0; rank < voices.size(); ++rank) {
    expect_losses(voices[rank]->losses(), wanted.losses);
    EXPECT_EQ(voices[rank]->losses(), voices[0]->losses()) << "to the bit";
    EXPECT_EQ(voices[rank]->events("checkpoint").size(), rank == 0 ? 1 : 0);
    for (const Json& step : voices[rank]->events("step")) {
      EXPECT_EQ(step.at("ranks"), voices.size());
      EXPECT_EQ(step.at("leads"), rank == 0);
    }
  }
}

// Checkpoints, evaluations and the end take in what a step carried over; rates change with steps.
TEST_F(RankTrainingTest, CarriedExchangesChangeNoBit) {
  for (const bool in_parts : {false, true}) {
    std::vector<FloatsByName> weights, states;
    std::vector<std::vector<double>> losses;
    std::vector<std::vector<Json>> evaluations;
    for (const plan::Carried carried : {plan::Carried{}, {1, 0}, {1, 1}, {99, 0}}) {
      const SmallPrograms programs = lower_small(model_, {.samples = {2, 1, 1},
                                                          .in_parts = in_parts,
                                                          .bucket_bytes = Bytes(64),
                                                          .carried = carried});
      const auto& all = programs.training.devices[0].instructions;
      EXPECT_EQ(
          std::any_of(all.begin(), all.end(), [](const auto& each) { return each.is_carried; }),
          carried.exchanges > 0);
      EXPECT_TRUE(program::verify_program(programs.training, "carried"));
      std::filesystem::remove_all(run_dir());
      std::filesystem::create_directories(run_dir());
      Job job = small_job(dir_, programs, 7);
      job.checkpoint_every = 3;
      job.evaluation = small_evaluation(dir_, 2);
      job.schedule.kind = ScheduleKind::kCosine;
      job.schedule.steps = 7;
      const Voices voices = train(job, programs);
      weights.push_back(floats_of_file(published()));
      // Of parts each rank has its own file.
      states.push_back(floats_of_file(path_of(run_dir(), 7) + "/optimizer" +
                                      (in_parts ? "-00002-of-00003" : "") + ".safetensors"));
      losses.push_back(voices[0]->losses());
      evaluations.emplace_back();
      for (Json each : voices[0]->events("evaluation")) {
        each.erase("seconds");
        evaluations.back().push_back(std::move(each));
      }
    }
    for (std::size_t i = 1; i < weights.size(); ++i) {
      EXPECT_EQ(weights[i], weights[0]);
      EXPECT_EQ(states[i], states[0]);
      EXPECT_EQ(losses[i], losses[0]);
      EXPECT_EQ(evaluations[i], evaluations[0]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Splits, TrainsIdentical,
    ::testing::Values(Sharing{"ThreeToOne", {{3, 1}}}, Sharing{"OneToThree", {{1, 3}}},
                      Sharing{"ThreeRanks", {{2, 1, 1}}},
                      Sharing{"ThreeRanksByGloo", {{2, 1, 1}}, "gloo"},
                      Sharing{"InParts", {.samples = {2, 1, 1}, .in_parts = true}},
                      Sharing{"InPartsByGloo", {.samples = {1, 3}, .in_parts = true}, "gloo"},
                      Sharing{"WithCommits", {.samples = {3, 1}, .commits = true}}),
    [](const auto& info) { return info.param.name; });

// Rates are the optimizer's times the factors of schedule and batch.
TEST_F(RankTrainingTest, RatesFollowTheScheduleAndTheBatch) {
  const SmallPrograms programs = lower_small(model_, {{3, 1}});
  Job job = small_job(dir_, programs, 3);
  job.schedule = {.kind = ScheduleKind::kFile, .factors = {1, 0.5, 0.25}};
  job.batches = {.first = 4, .most = 4, .lr_factor = 0.5};
  const Voices voices = train(job, programs);
  const DirectTraining wanted = direct().run(1, 4, 0.5).run(1, 4, 0.25).run(1, 4, 0.125);
  expect_losses(voices[1]->losses(), wanted.losses);
  expect_weights(floats_of_file(published()), wanted);
  std::vector<double> factors;
  for (const Json& step : voices[1]->events("step")) {
    factors.push_back(step.at("lr_factor"));
    EXPECT_EQ(step.at("batch"), 4);
  }
  EXPECT_THAT(factors, ElementsAre(0.5, 0.25, 0.125));
}

// Steps count samples in units of the first batch: three of 4 samples are two of 4 and two of 2.
TEST_F(RankTrainingTest, WhereTheBatchChangesStepsCountSamples) {
  const SmallPrograms first = lower_small(model_, {{3, 1}});
  Job job = small_job(dir_, first, 2);
  job.batches = {.first = 4, .most = 4};
  train(job, first);
  const SmallPrograms second = lower_small(model_, {{1, 1}});
  job.steps = 3;
  const Voices voices = train(job, second);
  const DirectTraining wanted = direct().run(2, 4).run(2, 2);
  EXPECT_EQ(voices[0]->events("ready").at(0).at("first_step"), 2);
  expect_losses(voices[0]->losses(), {wanted.losses[2], wanted.losses[3]});
  expect_weights(floats_of_file(published()), wanted);
}

double square_of(const testing::StepValues& values) {
  double sum = 0;
  for (const auto& [name, gradient] : values.gradients)
    for (const double each : gradient.at) sum += each * each;
  return sum;
}

// Rank 0 has the first three samples of each four, rank 1 the last one; a rank that counts in every
// second step reports nothing for the others.
TEST_F(RankTrainingTest, SquaresOfGradientsAreThoseOfTheRanksSamples) {
  const SmallPrograms programs = lower_small(model_, {.samples = {3, 1}, .counts_squares = true});
  const Voices voices = run_ranks(small_job(dir_, programs, 3), programs,
                                  [&](WorkerSession& session, const Reporter& reporter) {
                                    session.counts_every->store(2);
                                    const auto training = RankTraining::open(session, reporter);
                                    ASSERT_TRUE(training && (*training)->run());
                                  });
  DirectTraining wanted = direct();
  for (std::size_t step = 0; step < 3; ++step, wanted.run(1, 4)) {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const Json said = voices[rank]->events("step").at(step);
      ASSERT_EQ(said.contains("squares"), step != 1);
      if (step == 1) continue;
      const std::int64_t samples = rank == 0 ? 3 : 1;
      const std::int64_t first = wanted.taken + (rank == 0 ? 0 : 3);
      const double own = square_of(wanted.gradients(first, samples));
      const double whole = square_of(wanted.gradients(wanted.taken, 4));
      const Json& squares = said.at("squares");
      EXPECT_NEAR(squares.at("whole").get<double>(), whole, 1e-4 * whole);
      ASSERT_EQ(squares.at("pieces").size(), 1u);
      EXPECT_EQ(squares.at("pieces")[0][0], samples);
      EXPECT_NEAR(squares.at("pieces")[0][1].get<double>(), own, 1e-4 * own);
    }
  }
}

TEST_F(RankTrainingTest, TheLastStepsAreKeptAsATrace) {
  const SmallPrograms programs = lower_small(model_, {{3, 1}});
  Job job = small_job(dir_, programs, 4);
  job.trace_steps = 2;
  train(job, programs);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string path = fmt::format("{}/trace/rank-{}.txt", run_dir(), rank);
    const auto trace = trace::parse_trace(read_file(path).value_or(""), path);
    ASSERT_TRUE(trace) << fault_of(trace);
    std::set<std::int64_t> steps;
    for (const trace::Interval& each : trace->intervals) steps.insert(each.step);
    EXPECT_THAT(steps, ElementsAre(2, 3));
  }
}

// A loop outside: samples and rates are its own.
TEST_F(RankTrainingTest, AScriptStepsSavesAndEnds) {
  const SmallPrograms programs = lower_small(model_, {{3, 1}});
  Job job = small_job(dir_, programs, 0);
  job.evaluation = small_evaluation(dir_, 0);
  const auto data =
      data::open_dataset({.path = dir_ + "/data.safetensors"}, input_specs(model_.graph));
  ASSERT_TRUE(data) << fault_of(data);
  const DirectTraining wanted = direct().run(1, 4, 0.5).run(1, 4, 2);
  const Voices voices =
      run_ranks(job, programs, [&](WorkerSession& session, const Reporter& reporter) {
        const auto opened = RankTraining::open(session, reporter);
        ASSERT_TRUE(opened) << fault_of(opened);
        RankTraining& training = **opened;
        using Numbers = std::vector<std::int64_t>;
        const bool leads = session.rank == 0;
        const data::DatasetBatch one(**data, leads ? Numbers{0, 1, 2} : Numbers{3});
        const data::DatasetBatch two(**data, leads ? Numbers{4, 5, 6} : Numbers{7});
        ASSERT_TRUE(training.step(one, 0.5) && training.step(two, 2));
        EXPECT_EQ(training.steps_done(), 2);
        ASSERT_TRUE(training.checkpoint() && training.checkpoint()) << "one is enough";
        const auto evaluated = training.evaluate_batch(0, two);
        ASSERT_TRUE(evaluated) << fault_of(evaluated);
        // Programs split four samples as training does.
        EXPECT_NEAR(evaluated->loss, wanted.gradients(4, 4).loss, 1e-5);
        ASSERT_TRUE(training.end());
      });
  expect_losses(voices[0]->losses(), wanted.losses);
  expect_weights(floats_of_file(published()), wanted);
  EXPECT_THAT(voices[0]->names(), ElementsAre("step", "step", "checkpoint", "done"));
}

// --- checkpoints ---------------------------------------------------------------------------------

TEST_F(RankTrainingTest, ARerunContinuesAndEqualsAnUndisturbedTraining) {
  const SmallPrograms programs = lower_small(model_, {{3, 1}});
  Job job = small_job(dir_, programs, 5);
  const Voices whole = train(job, programs);
  const std::string undisturbed = read_file(published()).value();
  const std::string states = read_file(path_of(run_dir(), 5) + "/optimizer.safetensors").value();
  job.run_dir = dir_ + "/again";
  job.steps = 2;
  train(job, programs);
  job.steps = 5;
  const Voices rest = train(job, programs);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::vector<double> all = whole[rank]->losses();
    EXPECT_EQ(rest[rank]->losses(), std::vector<double>(all.begin() + 2, all.end()));
    EXPECT_EQ(rest[rank]->events("ready").at(0).at("first_step"), 2);
  }
  EXPECT_EQ(read_file(job.run_dir + "/model.safetensors").value(), undisturbed);
  EXPECT_EQ(read_file(path_of(job.run_dir, 5) + "/optimizer.safetensors").value(), states);
  const Json ready = rest[0]->events("ready").at(0);
  EXPECT_EQ(ready.at("resumed_from"), path_of(job.run_dir, 2));
  EXPECT_EQ(ready.at("note"), "resumed from " + path_of(job.run_dir, 2));
}

TEST_F(RankTrainingTest, GoesOnUnderAnotherSplitOrBeginsAnew) {
  train({{3, 1}}, 2);
  const SmallPrograms programs = lower_small(model_, {{1, 1, 2}});
  Job job = small_job(dir_, programs, 5);
  const DirectTraining wanted = direct().run(5, 4);
  expect_losses(train(job, programs)[2]->losses(),
                {wanted.losses.begin() + 2, wanted.losses.end()});
  expect_weights(floats_of_file(published()), wanted);
  job.resume = false;
  expect_losses(train(job, programs)[2]->losses(), wanted.losses);
}

TEST_F(RankTrainingTest, SavesEverySoManyStepsAndKeepsTheTwoLast) {
  const SmallPrograms programs = lower_small(model_, {{3, 1}});
  Job job = small_job(dir_, programs, 5);
  job.checkpoint_every = 2;
  const Voices voices = train(job, programs);
  std::vector<std::int64_t> steps;
  for (const Json& each : voices[0]->events("checkpoint")) steps.push_back(each.at("step"));
  EXPECT_THAT(steps, ElementsAre(2, 4, 5));
  EXPECT_EQ(CheckpointStore(run_dir()).latest(), path_of(run_dir(), 5));
  EXPECT_FALSE(fs::exists(path_of(run_dir(), 2)));
  EXPECT_TRUE(fs::exists(path_of(run_dir(), 4)));
}

TEST_F(RankTrainingTest, ADamagedCheckpointIsNamedWithTheWayOut) {
  const SmallPrograms programs = lower_small(model_, {{4}});
  Job job = small_job(dir_, programs, 2);
  job.checkpoint_every = 1;
  train(job, programs);
  const std::string path = path_of(run_dir(), 2) + "/model.safetensors";
  const std::string whole = hash_hex(read_file(path).value());
  fs::resize_file(path, 1000);
  job.steps = 4;
  EXPECT_EQ(fault_alone(job, programs),
            fmt::format("usage run.checkpoint: {}: found hash {}, wanted {} (state.json): the file "
                        "was damaged or "
                        "changed; remove {}/checkpoint/step-00000002 and run again to go on from "
                        "step-00000001",
                        path, hash_hex(read_file(path).value()), whole, run_dir()));
}

TEST_F(RankTrainingTest, ACheckpointOfAnotherJobOrOptimizerIsRefused) {
  const SmallPrograms programs = lower_small(model_, {{4}});
  const SmallPrograms plain = lower_small(model_, {.samples = {4}, .momentum = 0});
  Job job = small_job(dir_, programs, 2);
  train(job, programs);
  const std::string saved = path_of(run_dir(), 2);
  const std::string advice =
      ": written with another optimizer; use the same one, another --run-dir, or --resume never";
  EXPECT_EQ(fault_alone(job, plain), "usage run.checkpoint-other: " + saved +
                                         ": its optimizer has 'net.0.bias/momentum'" + advice);
  job.seed = 5;
  EXPECT_EQ(fault_alone(job, programs),
            "usage run.checkpoint-other: " + saved +
                " belongs to another job: found seed 0, wanted 5; use another --run-dir, "
                "or --resume never to start anew here");
  job.resume = false;
  train(job, plain);
  job.resume = true;
  EXPECT_EQ(fault_alone(job, programs), "usage run.checkpoint-other: " + saved +
                                            ": its optimizer lacks 'net.0.bias/momentum'" + advice);
}

// `checkpoint` is a file: no folder can be made there.
TEST_F(RankTrainingTest, ACheckpointThatCannotBeWrittenEndsAllRanks) {
  const SmallPrograms programs = lower_small(model_, {{3, 1}});
  ASSERT_TRUE(write_file_atomic(run_dir() + "/checkpoint", "no folder"));
  const std::vector<std::string> found = faults(small_job(dir_, programs, 1), programs);
  EXPECT_EQ(found[0], fmt::format("runtime run.checkpoint-write: checkpoint of step 1 not written "
                                  "(there is no earlier one): "
                                  "{}/checkpoint/step-00000001.tmp: Not a directory",
                                  run_dir()));
  EXPECT_EQ(found[1],
            "runtime run.peer-lost: rank 1: rank 0 could not write the checkpoint of step 1");
}

// --- tensors in parts ----------------------------------------------------------------------------

TEST_F(RankTrainingTest, PartsThatEachRankWroteAreWholeAgain) {
  const SmallSplit split = {.samples = {2, 1, 1}, .in_parts = true};
  train(split, 3);
  const DirectTraining wanted = direct().run(5, 4);
  const std::string folder = path_of(run_dir(), 3);
  for (int rank = 1; rank <= 3; ++rank)
    for (const char* what : {"model", "optimizer"})
      EXPECT_TRUE(fs::exists(fmt::format("{}/{}-{:05}-of-00003.safetensors", folder, what, rank)));
  const auto saved = open_checkpoint(folder);
  ASSERT_TRUE(saved) << fault_of(saved);
  ASSERT_TRUE(saved->optimizer.write_whole(dir_ + "/states"));
  const DirectTraining then = direct().run(3, 4);
  const FloatsByName states = floats_of_file(dir_ + "/states");
  for (const std::string& name : kParameters)
    expect_like(states.at(name + "/momentum"), then.momenta.at(name), name);
  expect_weights(floats_of_file(published()), then);
  // Training continues from them as they are, cut in another way, and whole.
  train(split, 4);
  train({.samples = {1, 3}, .in_parts = true}, 5);
  expect_weights(floats_of_file(published()), wanted);
  train({{4}}, 6);
  expect_weights(floats_of_file(published()), direct().run(6, 4));
}

TEST_F(RankTrainingTest, RanksThatKeepPartsMustSeeTheRunDirectory) {
  const SmallPrograms programs = lower_small(model_, {.samples = {3, 1}, .in_parts = true});
  const auto found = faults(small_job(dir_, programs, 1), programs, [&](WorkerSession& session) {
    if (session.rank == 1) session.job.run_dir = dir_ + "/elsewhere";
  });
  EXPECT_EQ(found[0],
            "runtime run.checkpoint-write: " +
                fmt::format("checkpoint of step 1 not written (there is no earlier one): rank "
                            "1: {}/elsewhere/checkpoint/step-00000001.tmp: not there for "
                            "rank 1; all ranks must see one run directory where they keep parts "
                            "of the parameters: put it on a file system that their hosts share",
                            dir_));
  EXPECT_EQ(found[1],
            "runtime run.peer-lost: rank 1: rank 0 could not write the checkpoint of step 1");
  EXPECT_FALSE(fs::exists(run_dir() + "/checkpoint/step-00000001.tmp"));
}

/// Returns a job whose second rank is on another machine, with its own run directory.
Job with_own_directories(Job job) {
  job.store = StoreAddress{};
  job.devices[1].host = "b";
  return job;
}

TEST_F(RankTrainingTest, PartsOfAnotherMachineAreSentToRank0) {
  const SmallPrograms programs = lower_small(model_, {.samples = {3, 1}, .in_parts = true});
  const Job job = with_own_directories(small_job(dir_, programs, 3));
  EXPECT_EQ(faults(job, programs,
                   [&](WorkerSession& session) {
                     if (session.rank == 1) session.job.run_dir = dir_ + "/b";
                   }),
            std::vector<std::string>(2));
  expect_weights(floats_of_file(published()), direct().run(3, 4));
  EXPECT_FALSE(fs::exists(dir_ + "/b/rank-1")) << "nothing is kept there";
}

TEST_F(RankTrainingTest, PartsAreKeptWhereTheirHostKeepsThem) {
  const SmallPrograms programs = lower_small(model_, {.samples = {3, 1}, .in_parts = true});
  Job job = with_own_directories(small_job(dir_, programs, 3));
  job.kept = "runs/one/cut";
  EXPECT_EQ(faults(job, programs,
                   [&](WorkerSession& session) {
                     if (session.rank == 1) session.job.run_dir = dir_ + "/b";
                     if (session.rank == 1) session.job.kept = dir_ + "/b/kept/one/cut";
                   }),
            std::vector<std::string>(2));
  const HeldFile held = {"b", "one/cut/rank-1/checkpoint/step-00000003"};
  const auto found = held_files(path_of(run_dir(), 3));
  ASSERT_TRUE(found) << fault_of(found);
  EXPECT_EQ(*found, (HeldFiles{{"model-00002-of-00002.safetensors", held},
                               {"optimizer-00002-of-00002.safetensors", held}}));
  for (const auto& [name, file] : *found)
    EXPECT_TRUE(fs::exists(dir_ + "/b/kept/" + file.folder + "/" + name));
  EXPECT_FALSE(fs::exists(published())) << "it is not all here";
}

/// Gives rank 1 what it alone needs; its model file has no tensors.
void give_rank_1(const Job& job, const SmallPrograms& programs, const std::string& folder) {
  const auto files = RankFiles::open(job, programs.training);
  ASSERT_TRUE(files) << fault_of(files);
  fs::create_directories(folder + "/rank-1");
  ASSERT_TRUE(files->write_weights(Rank(1), folder + "/rank-1/weights.safetensors"));
  ASSERT_TRUE(files->write_model(folder + "/graph.motley"));
}

TEST_F(RankTrainingTest, ARankIsGivenItsPartsAloneAndThoseOfThatStep) {
  const SmallPrograms programs = lower_small(model_, {.samples = {3, 1}, .in_parts = true});
  Job job = small_job(dir_, programs, 2);
  give_rank_1(job, programs, dir_ + "/given");
  std::mutex guard;
  Rendezvous* of_rank_0 = nullptr;
  const auto given = [&](WorkerSession& session) {
    if (session.rank == 1) session.job.model_path = dir_ + "/given/graph.motley";
    if (session.rank == 1) session.job.rank_files = dir_ + "/given";
  };
  EXPECT_EQ(faults(job, programs, given), std::vector<std::string>(2));
  expect_weights(floats_of_file(published()), direct().run(2, 4));
  // Now rank 0 resumes from step 2, but rank 1 would begin anew.
  job.steps = 3;
  run_ranks(job, programs, [&](WorkerSession& session, const Reporter& reporter) {
    given(session);
    if (session.rank == 0) {
      const std::scoped_lock lock(guard);
      of_rank_0 = session.rendezvous.get();
    }
    const auto training = RankTraining::open(session, reporter);
    ASSERT_FALSE(training);
    const std::scoped_lock lock(guard);
    if (session.rank == 0) return;
    EXPECT_EQ(fault_of(training),
              "stale run.rank-files: rank 1 was given parts of step 0, rank 0 goes on from 2");
    of_rank_0->cancel();  // it waits for rank 1
  });
}

// Rank 0 resumes from a folder that does not exist for rank 1.
TEST_F(RankTrainingTest, ARankThatDoesNotSeeTheCheckpointSaysSo) {
  const SmallPrograms programs = lower_small(model_, {.samples = {3, 1}, .in_parts = true});
  run_ranks(
      small_job(dir_, programs, 5), programs,
      [&](WorkerSession& session, const Reporter& reporter) {
        if (session.rank == 0) {
          ASSERT_TRUE(join_groups(session));
          Rendezvous& rendezvous = *session.rendezvous;
          for (const auto& [key, value] : {std::pair{"resumed from", "/not/there/step-00000004"},
                                           {"best", "none"},
                                           {"samples", "16"},
                                           {"first step", "4"}})
            ASSERT_TRUE(rendezvous.set(key, value));
          ASSERT_TRUE(rendezvous.share("parts", "some", Seconds(10)));
          ASSERT_TRUE(
              rendezvous.agree("model file", hash_model_file(session.job.model_path).value()));
          return;
        }
        const auto training = RankTraining::open(session, reporter);
        ASSERT_FALSE(training);
        EXPECT_EQ(
            fault_of(training),
            "usage run.checkpoint: /not/there/step-00000004: rank 0 resumes from it, rank 1 (a:1) "
            "does not see it; all "
            "ranks must see one run directory where they keep parts of the parameters: put it on "
            "a file system that their hosts share");
      });
}

// --- what is wrong -------------------------------------------------------------------------------

TEST_F(RankTrainingTest, WhatCannotBeTrainedIsRefused) {
  SmallPrograms programs = lower_small(model_, {{4}});
  const Job job = small_job(dir_, programs, 1);
  const std::string hash = std::exchange(programs.training.model_hash, "other");
  EXPECT_EQ(fault_alone(job, programs),
            "stale run.stale-program: " +
                fmt::format("{}: found model {}, the program was made for other; plan again",
                            job.model_path, hash));
  EXPECT_EQ(fault_alone(job, {}), "usage run.job: the job has no program, nothing to train");
  programs.training.model_hash = hash;
  model_.write(job.model_path, false);
  EXPECT_EQ(fault_alone(job, programs), "usage run.graph-only: " + job.model_path +
                                            ": holds no weights (exported with --graph-only)");
}

// Sample 9 is in the third step, on rank 0; the loss is all ranks'.
TEST_F(RankTrainingTest, ALossThatIsNotFiniteEndsAllRanks) {
  const SmallPrograms programs = lower_small(model_, {{3, 1}});
  Job job = small_job(dir_, programs, 5);
  model_.write_data(job.data.path, {{9, std::numeric_limits<double>::quiet_NaN()}});
  const std::string begin = "loss is nan at step 2; ", end = "; try a smaller --lr";
  for (const std::string& each : faults(job, programs))
    EXPECT_EQ(each, "runtime run.loss-not-finite: " + begin + "there is no checkpoint" + end);
  job.checkpoint_every = 1;
  for (const std::string& each : faults(job, programs))
    EXPECT_EQ(each, "runtime run.loss-not-finite: " + begin + "the last checkpoint is " +
                        path_of(run_dir(), 2) + end);
}

// Features of 1e25 give a loss near 1e25 and gradients whose squares exceed float32.
TEST_F(RankTrainingTest, AGradientNormThatIsNotFiniteIsNamed) {
  const SmallPrograms programs = lower_small(model_, {.samples = {4}, .clip_norm = 1.0});
  const Job job = small_job(dir_, programs, 2);
  model_.write_data(job.data.path, {{0, 1e25}, {1, 1e25}, {2, 1e25}});
  EXPECT_EQ(fault_alone(job, programs),
            "runtime run.loss-not-finite: the gradients' norm is infinite at step 0; there is no "
            "checkpoint; try a smaller "
            "--lr");
  model_.write_data(job.data.path);
  const Voices voices = train(job, programs);
  // Of the gradients before clipping.
  const double norm = std::sqrt(square_of(direct().gradients(0, 4)));
  EXPECT_NEAR(voices[0]->events("step").at(0).at("gradient_norm").get<double>(), norm, 1e-5 * norm);
}

/// Trains with a parameter of rank 1 whose first element is altered by `change`.
std::string train_with_another_copy(const std::function<void(float&)>& change,
                                    const std::function<Result<End>(RankTraining&)>& run,
                                    WorkerSession& session, const Reporter& reporter) {
  const auto training = RankTraining::open(session, reporter);
  EXPECT_TRUE(training) << fault_of(training);
  if (session.rank == 1)
    change(*static_cast<float*>((*training)->persistent().at("net.2.bias").data_ptr()));
  const auto end = run(**training);
  return fault_of(end);
}

TEST_F(RankTrainingTest, CopiesThatDifferEndTheTrainingWithRank0sSafe) {
  const SmallPrograms programs = lower_small(model_, {{3, 1}});
  std::vector<std::string> found(2);
  run_ranks(small_job(dir_, programs, 1), programs,
            [&](WorkerSession& session, const Reporter& reporter) {
              found[static_cast<std::size_t>(session.rank)] = train_with_another_copy(
                  [](float& first) { first += 0.5F; },
                  [](RankTraining& training) { return training.run(); }, session, reporter);
            });
  const FloatsByName saved = floats_of_file(path_of(run_dir(), 1) + "/model.safetensors");
  float largest = 0;
  for (const float each : saved.at("net.2.bias")) largest = std::max(largest, std::abs(each));
  for (const std::string& each : found)
    EXPECT_EQ(each,
              "runtime run.copies-differ: " +
                  fmt::format("after step 1 'net.2.bias' on rank 1 (a:1, host {}) differed from "
                              "rank 0's by up to 0.5, allowed are {:.2g}; so did 1 of its "
                              "tensors, and those of 1 ranks in all; the checkpoint of step 1 "
                              "is safe and has rank 0's: check that device and its memory, or "
                              "leave it out (--exclude), and run again to go on from there",
                              own_host_name(), 1e-5 * static_cast<double>(largest)));
}

TEST_F(RankTrainingTest, LastBitsThatDifferAreMadeEqualAndSaid) {
  const SmallPrograms programs = lower_small(model_, {{3, 1}});
  std::vector<FloatsByName> last(2);
  const Voices voices = run_ranks(
      small_job(dir_, programs, 2), programs,
      [&](WorkerSession& session, const Reporter& reporter) {
        const std::string fault = train_with_another_copy(
            [](float& first) { first = std::nextafter(std::nextafter(first, 9.0F), 9.0F); },
            [&](RankTraining& training) {
              auto end = training.run();
              last[static_cast<std::size_t>(session.rank)] = floats_of(training.persistent());
              return end;
            },
            session, reporter);
        EXPECT_EQ(fault, "");
      });
  EXPECT_EQ(last[0], last[1]);
  ASSERT_EQ(voices[0]->events("copies").size(), 1u);
  EXPECT_EQ(voices[0]->events("copies").at(0).at("step"), 2);
  EXPECT_THAT(voices[0]->events("copies").at(0).at("note").get<std::string>(),
              HasSubstr("'net.2.bias' on rank 1 (a:1, host"));
  EXPECT_THAT(voices[1]->events("copies"), IsEmpty());
}

// --- evaluations ---------------------------------------------------------------------------------

std::vector<std::int64_t> evaluated(const HeardReporter& voice) {
  std::vector<std::int64_t> steps;
  for (const Json& each : voice.events("evaluation")) steps.push_back(each.at("step"));
  return steps;
}

class EvaluatedTraining : public RankTrainingTest, public ::testing::WithParamInterface<Sharing> {};

// Eleven samples are two batches of four and one of three. The loss falls, so the first is highest.
TEST_P(EvaluatedTraining, IsEvaluatedWhenAskedAndKeepsTheBest) {
  const SmallPrograms programs = lower_small(model_, GetParam().split);
  Job job = small_job(dir_, programs, 5);
  job.evaluation = small_evaluation(dir_, 2);
  job.evaluation->watch = {.metric = "loss", .higher_is_better = true};
  job.checkpoint_every = 1;
  const Voices voices = train(job, programs);
  EXPECT_THAT(evaluated(*voices[0]), ElementsAre(2, 4, 5));
  EXPECT_THAT(evaluated(*voices[1]), IsEmpty());
  DirectTraining wanted = direct();
  for (const Json& each : voices[0]->events("evaluation")) {
    const std::int64_t step = each.at("step");
    wanted.run(step - static_cast<std::int64_t>(wanted.losses.size()), 4);
    const auto [loss, activity] = wanted.evaluate();
    EXPECT_NEAR(each.at("loss").get<double>(), loss, 1e-5);
    EXPECT_NEAR(each.at("metrics").at("activity").get<double>(), activity, 1e-5);
    EXPECT_EQ(each.at("is_best"), step == 2);
  }
  EXPECT_EQ(CheckpointStore(run_dir()).best(), path_of(run_dir(), 2));
  expect_weights(floats_of_file(run_dir() + "/model_best.safetensors"), direct().run(2, 4));
  expect_weights(floats_of_file(published()), wanted);
}

INSTANTIATE_TEST_SUITE_P(Splits, EvaluatedTraining,
                         ::testing::Values(Sharing{"ThreeToOne", {{3, 1}}},
                                           Sharing{"InParts",
                                                   {.samples = {1, 3}, .in_parts = true}}),
                         [](const auto& info) { return info.param.name; });

TEST_F(RankTrainingTest, PatienceEndsATrainingAndAResumedOneKnows) {
  const SmallPrograms programs = lower_small(model_, {{3, 1}});
  Job job = small_job(dir_, programs, 4);
  job.evaluation = small_evaluation(dir_, 2);
  job.evaluation->watch = {.metric = "loss", .higher_is_better = true};
  job.evaluation->patience = 2;
  EXPECT_THAT(evaluated(*train(job, programs)[0]), ElementsAre(2, 4));
  job.steps = 40;
  const Voices rest = train(job, programs);
  EXPECT_THAT(evaluated(*rest[0]), ElementsAre(6));
  for (const auto& each : rest) EXPECT_EQ(each->events("done").at(0).at("steps"), 6);
  EXPECT_EQ(CheckpointStore(run_dir()).best(), path_of(run_dir(), 2));
  EXPECT_THAT(train(job, programs)[1]->names(), ElementsAre("ready", "done"));
}

TEST_F(RankTrainingTest, AnEvaluationThatIsNotFiniteLeavesACheckpoint) {
  const SmallPrograms programs = lower_small(model_, {{3, 1}});
  Job job = small_job(dir_, programs, 4);
  job.evaluation = small_evaluation(dir_, 2);
  job.evaluation->data.path = dir_ + "/other.safetensors";
  model_.write_data(job.evaluation->data.path, {{9, std::numeric_limits<double>::quiet_NaN()}});
  for (const std::string& each : faults(job, programs))
    EXPECT_EQ(each,
              "runtime run.metric: evaluation after step 2: the loss is nan over the evaluation's "
              "samples");
  EXPECT_EQ(CheckpointStore(run_dir()).latest(), path_of(run_dir(), 2));
}

// --- stops ---------------------------------------------------------------------------------------

TEST_F(RankTrainingTest, AStopOfOneRankIsAStopOfAllWithACheckpoint) {
  const SmallPrograms programs = lower_small(model_, {{3, 1}});
  Job job = small_job(dir_, programs, 4);
  job.run_dir = dir_ + "/whole";
  const Voices whole = train(job, programs);
  job.run_dir = run_dir();
  const Voices part =
      run_ranks(job, programs, [&](WorkerSession& session, const Reporter& reporter) {
        const auto training = RankTraining::open(session, reporter);
        ASSERT_TRUE(training) << fault_of(training);
        if (session.rank == 1) (*training)->request_stop();
        const auto end = (*training)->run();
        ASSERT_TRUE(end) << fault_of(end);
        EXPECT_EQ(*end, End::kStopped);
      });
  for (const auto& each : part) {
    EXPECT_EQ(each->losses().size(), 1u);
    EXPECT_EQ(each->events("done").at(0).at("reason"), "stopped");
    EXPECT_EQ(each->events("done").at(0).at("steps"), 1);
  }
  EXPECT_FALSE(fs::exists(published())) << "it has not ended";
  train(job, programs);
  EXPECT_EQ(read_file(published()).value(), read_file(dir_ + "/whole/model.safetensors").value());
}

TEST_F(RankTrainingTest, AStopAtAnyMomentIsAfterOneStepOfAll) {
  const SmallPrograms programs = lower_small(model_, {{2, 1, 1}});
  const Job job = small_job(dir_, programs, 5000);
  const Voices voices =
      run_ranks(job, programs, [&](WorkerSession& session, const Reporter& reporter) {
        const auto training = RankTraining::open(session, reporter);
        ASSERT_TRUE(training) << fault_of(training);
        std::thread other;
        if (session.rank == 2)
          other = std::thread([&] {
            await([&] { return (*training)->status()->record().step >= 3; });
            (*training)->request_stop();
          });
        const auto end = (*training)->run();
        if (other.joinable()) other.join();
        ASSERT_TRUE(end) << fault_of(end);
        EXPECT_EQ(*end, End::kStopped);
      });
  const std::vector<double> losses = voices[0]->losses();
  EXPECT_GT(losses.size(), 3u);
  EXPECT_EQ(voices[1]->losses(), losses);
  EXPECT_EQ(voices[2]->losses(), losses);
  EXPECT_EQ(voices[0]->events("checkpoint").back().at("step"), losses.size());
}

TEST_F(RankTrainingTest, AStopInTheLastStepIsTheEnd) {
  const SmallPrograms programs = lower_small(model_, {{3, 1}});
  run_ranks(small_job(dir_, programs, 1), programs,
            [&](WorkerSession& session, const Reporter& reporter) {
              const auto training = RankTraining::open(session, reporter);
              ASSERT_TRUE(training) << fault_of(training);
              (*training)->request_stop();
              EXPECT_EQ((*training)->run(), End::kFinished);
            });
  EXPECT_TRUE(fs::exists(published()));
}

// --- losses of others ----------------------------------------------------------------------------

class LostOthers : public RankTrainingTest {
 protected:
  /// Halts rank 0 in a step that rank 1 does not take part in, while it waits for the first
  /// exchange; then passes its training to `see`.
  void see_halted(const SmallPrograms& programs, const std::function<void(RankTraining&)>& see) {
    std::atomic<bool> has_seen = false;
    run_ranks(small_job(dir_, programs, 3), programs,
              [&](WorkerSession& session, const Reporter& reporter) {
                const auto opened = RankTraining::open(session, reporter);
                ASSERT_TRUE(opened) << fault_of(opened);
                if (session.rank == 1) return await([&] { return has_seen.load(); });
                RankTraining& training = **opened;
                std::thread other([&] {
                  await([&] { return training.status()->record().transfer_instruction >= 0; });
                  training.halt();
                });
                const auto end = training.run();
                other.join();
                EXPECT_FALSE(end);
                see(training);
                has_seen = true;
              });
  }
};

TEST_F(LostOthers, AHaltEndsTheWaitForThemAndTheStepIsUndone) {
  see_halted(lower_small(model_, {.samples = {3, 1}, .commits = true}),
             [&](RankTraining& training) {
               EXPECT_TRUE(training.is_in_step());
               EXPECT_FALSE(training.may_end_step());
               EXPECT_EQ(fault_of(training.settle(1)),
                         "runtime run.unsettled: a:0: 0 steps are done here, 1 are to be");
               EXPECT_EQ(fault_of(training.settle(0)), "");
               EXPECT_FALSE(training.is_in_step());
               EXPECT_EQ(training.point().step, 0);
               expect_weights(floats_of(training.persistent()), direct());
               EXPECT_EQ(fault_of(training.run()),
                         "runtime run.halted: told to stop, as others were lost");
             });
}

TEST_F(LostOthers, WithoutACommitAStepIsNeitherEndedNorUndone) {
  see_halted(lower_small(model_, {{3, 1}}), [&](RankTraining& training) {
    EXPECT_TRUE(training.is_in_step());
    EXPECT_FALSE(training.may_end_step());
    EXPECT_EQ(fault_of(training.settle(0)), "runtime run.unsettled: a:0: a step cannot be undone");
  });
}

/// Rank 0's position, and the instruction that sums the ballots.
struct Watched {
  std::atomic<const StatusRecord*> record = nullptr;
  std::atomic<std::int64_t> sum = 0;
};
Watched watched;

/// Fails once rank 0 waits for the sum of the ballots.
at::Tensor fail_late(const at::Tensor&) {
  await([] {
    const StatusRecord* record = watched.record;
    return record != nullptr && record->transfer_instruction == watched.sum;
  });
  throw std::runtime_error("lost");
}
TORCH_LIBRARY(motley_test, library) { library.def("fail_late(Tensor x) -> Tensor", &fail_late); }

/// Makes rank 1 fail before its ballot, after everything that others need from it.
SmallPrograms failing_late(SmallPrograms programs) {
  watched.sum = static_cast<std::int64_t>(program::find_commit(programs.training.devices[0])->at);
  program::DeviceProgram& device = programs.training.devices[1];
  const auto ballot =
      std::find_if(device.instructions.begin(), device.instructions.end(),
                   [](const program::Instruction& each) { return each.op == program::kBallot; });
  const InstructionId place(ballot - device.instructions.begin());
  program::Instruction failing{Lane::kCompute, "motley_test::fail_late", "", {{BufferId(3)}}};
  failing.outputs = {BufferId(static_cast<std::int64_t>(device.buffers.size()))};
  failing.waits = ballot->waits;
  device.buffers.push_back({program::BufferKind::kTemporary, DType::kF32, {1}});
  device.instructions.insert(ballot, failing);
  for (program::Instruction& each : device.instructions)
    for (InstructionId& wait : each.waits)
      if (!(wait < place)) wait = InstructionId(wait.value + 1);
  return programs;
}

// Rank 0 has voted when it learns of the loss: it may complete or undo the step. Rank 1 has not.
TEST_F(LostOthers, AStepThatOneIsReadyForIsEndedOrUndone) {
  const SmallPrograms programs =
      failing_late(lower_small(model_, {.samples = {3, 1}, .commits = true}));
  for (const std::int64_t done : {1, 0}) {
    watched.record = nullptr;
    run_ranks(small_job(dir_, programs, 3), programs,
              [&](WorkerSession& session, const Reporter& reporter) {
                const bool is_ready = session.rank == 0;
                const auto opened = RankTraining::open(session, reporter);
                ASSERT_TRUE(opened) << fault_of(opened);
                RankTraining& training = **opened;
                if (is_ready) watched.record = &training.status()->record();
                ASSERT_FALSE(training.run());
                EXPECT_TRUE(training.is_in_step());
                EXPECT_EQ(training.may_end_step(), is_ready);
                EXPECT_EQ(fault_of(training.settle(done)),
                          is_ready || done == 0
                              ? ""
                              : "runtime run.unsettled: a:1: 0 steps are done here, 1 are to be");
                if (!is_ready && done == 1) return;
                EXPECT_EQ(training.point().step, done);
                EXPECT_EQ(training.point().samples, 4 * done);
                expect_weights(floats_of(training.persistent()), direct().run(done, 4));
              });
  }
}

// --- other programs ------------------------------------------------------------------------------

TEST_F(RankTrainingTest, AWishForAChangeEndsAllAfterOneStepUnlessSomeStop) {
  const SmallPrograms programs = lower_small(model_, {{3, 1}});
  for (const bool stops : {false, true}) {
    const Voices voices =
        run_ranks(small_job(dir_, programs, 9), programs,
                  [&](WorkerSession& session, const Reporter& reporter) {
                    const auto training = RankTraining::open(session, reporter);
                    ASSERT_TRUE(training) << fault_of(training);
                    if (session.rank == 0) (*training)->request_change();
                    if (session.rank == 1 && stops) (*training)->request_stop();
                    EXPECT_EQ((*training)->run(), stops ? End::kStopped : End::kChanged);
                    EXPECT_EQ((*training)->steps_done(), 1);
                  });
    EXPECT_EQ(voices[0]->events("done").size(), stops ? 1u : 0u);
    EXPECT_EQ(fs::exists(path_of(run_dir(), 1)), stops);
  }
}

/// Returns the handover of an ended training to the same program on one device.
Handover hand_over(RankTraining& training, WorkerSession& next) {
  Handover handover;
  handover.model = training.model();
  handover.status = training.status();
  ExecutorOptions options = executor_options(next);
  options.shared = training.persistent();
  auto executor = Executor::create(next.program.devices[0], options, nullptr, nullptr);
  EXPECT_TRUE(executor) << fault_of(executor);
  handover.executor = std::move(*executor);
  handover.point = training.point();
  return handover;
}

TEST_F(RankTrainingTest, GoesOnByAnotherProgramWithTheTensorsAsTheyAre) {
  const SmallPrograms programs = lower_small(model_, {{4}});
  Job job = small_job(dir_, programs, 5);
  job.checkpoint_every = 2;
  const HeardReporter voice(0);
  const auto first = session_of(job, programs, 0), second = session_of(job, programs, 0);
  second->generation = 1;
  const auto training = RankTraining::open(*first, voice.reporter());
  ASSERT_TRUE(training) << fault_of(training);
  EXPECT_EQ((*training)->run(3), End::kChanged);
  const TrainingPoint point = (*training)->point();
  EXPECT_EQ(point.step, 3);
  EXPECT_EQ(point.samples, 12);
  EXPECT_EQ(point.saved_step, 2);
  EXPECT_EQ(point.saved_path, path_of(run_dir(), 2));
  Handover handover = hand_over(**training, *second);
  handover.lr_factor = 0.5;
  const auto next = RankTraining::go_on(*second, voice.reporter(), std::move(handover));
  ASSERT_TRUE(next) << fault_of(next);
  EXPECT_EQ((*next)->run(), End::kFinished);
  const DirectTraining wanted = direct().run(3, 4).run(2, 4, 0.5);
  expect_losses(voice.losses(), wanted.losses);
  expect_weights(floats_of_file(published()), wanted);
  EXPECT_EQ(voice.events("ready").size(), 1u);
  EXPECT_FALSE(voice.events("step").at(2).contains("stint"));
  EXPECT_EQ(voice.events("step").at(3).at("stint"), 1);
}

// After a loss, work due after the last step comes first: here a checkpoint, and nothing more if
// only that is left.
TEST_F(RankTrainingTest, WhatIsDueAfterALossIsDoneFirst) {
  const SmallPrograms programs = lower_small(model_, {{4}});
  for (const bool stops : {false, true}) {
    Job job = small_job(dir_, programs, 4);
    job.run_dir = fmt::format("{}/{}", dir_, stops);
    const HeardReporter voice(0);
    const auto first = session_of(job, programs, 0), second = session_of(job, programs, 0);
    second->job.checkpoint_every = 2;
    const auto training = RankTraining::open(*first, voice.reporter());
    ASSERT_TRUE(training) << fault_of(training);
    EXPECT_EQ((*training)->run(2), End::kChanged);
    Handover handover = hand_over(**training, *second);
    handover.after_loss = true;
    handover.stops = stops;
    const auto next = RankTraining::go_on(*second, voice.reporter(), std::move(handover));
    ASSERT_TRUE(next) << fault_of(next);
    EXPECT_EQ((*next)->run(), stops ? End::kStopped : End::kFinished);
    std::vector<std::string> wanted = {"ready", "step", "step", "checkpoint"};
    if (!stops) wanted.insert(wanted.end(), {"step", "step", "checkpoint"});
    wanted.emplace_back("done");
    EXPECT_EQ(voice.names(), wanted);
    EXPECT_EQ(voice.events("checkpoint").at(0).at("step"), 2);
  }
}

}  // namespace
}  // namespace motley::run

#include "motley/run/torch/order_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <istream>
#include <streambuf>

#include "motley/run/hosts/key_server.h"
#include "motley/synth/state/move.h"
#include "motley/testing/training_ranks.h"

namespace motley::run {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Seconds kSoon{10};

template <typename T>
std::string said_of(const Result<T>& result) {
  return result ? "" : result.error().code + ": " + result.error().message;
}

/// Standard input of a worker: lines arrive when a test says them.
class OrderLines final : public std::streambuf {
 public:
  void say(const std::string& line) {
    const std::scoped_lock lock(mutex_);
    lines_.push_back(line + "\n");
    changed_.notify_all();
  }

 protected:
  int_type underflow() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !lines_.empty(); });
    now_ = std::move(lines_.front());
    lines_.pop_front();
    setg(now_.data(), now_.data(), now_.data() + now_.size());
    return traits_type::to_int_type(*gptr());
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  std::string now_;
};

class EmptyBatch final : public data::Batch {
 public:
  std::int64_t samples() const override { return 0; }
  std::int64_t sample_bytes(std::size_t) const override { return 0; }
  void read(std::size_t, std::int64_t, std::byte*) const override {}
};

/// One process of a job, commanded by lines.
struct OrderedProcess {
  explicit OrderedProcess(int number) : voice(number) {}

  /// Shows the state that orders are prepared from.
  void show_present(bool leads) {
    OrderReader::Present present;
    present.status = status;
    present.leads = leads;
    present.request_change = [this] { ++changes_requested; };
    reader->set_present(std::move(present));
  }
  void tell(const Change& change) { lines.say(order_of(change)); }

  /// Returns the line of a change. One that moves nothing has no move, as if tensors were loaded.
  std::string order_of(const Change& change) const {
    const std::string& device = session->device().name;
    if (change.recovery || !change.moving.empty()) return print_order(change, device);
    Change loaded = change;
    loaded.recovery = Recovery{.from = "new"};
    Json order = Json::parse(print_order(loaded, device));
    order["recovery"] = nullptr;
    return order.dump();
  }

  HeardReporter voice;
  std::unique_ptr<WorkerSession> session;
  std::shared_ptr<StatusFile> status;
  OrderLines lines;
  std::istream stream{&lines};
  std::unique_ptr<OrderReader> reader;
  std::atomic<int> changes_requested = 0;
};

/// Two processes, a:0 and a:1, whose job trains four samples a step.
class OrderReaderTest : public TrainingTest {
 protected:
  using Processes = std::vector<OrderedProcess*>;

  Job job_of(const SmallPrograms& programs, std::int64_t steps = 8) const {
    Job job = small_job(dir_, programs, steps);
    job.changes = Changes{};
    return job;
  }

  /// Starts readers, whose threads may wait forever: what they use lives until the program ends.
  Processes start(const Job& job, const SmallPrograms& programs) {
    static auto& kept = *std::make_unique<std::vector<std::unique_ptr<OrderedProcess>>>().release();
    Processes processes;
    for (std::size_t number = 0; number < job.devices.size(); ++number) {
      auto made = std::make_unique<OrderedProcess>(static_cast<int>(number));
      made->session = session_of(job, programs, static_cast<int>(number));
      auto status = StatusFile::create(job.run_dir, static_cast<int>(number));
      EXPECT_TRUE(status);
      made->status = std::make_shared<StatusFile>(std::move(*status));
      made->reader =
          OrderReader::start(*made->session, made->voice.reporter(), made->stream).value();
      processes.push_back(made.get());
      kept.push_back(std::move(made));
    }
    return processes;
  }
  Processes start() { return start(job_of(whole_), whole_); }

  /// Returns a change to a program whose tensors are the model file's.
  Change change_to(const SmallPrograms& programs, int number) const {
    Change change;
    change.number = number;
    change.after = number - 1;
    change.program = programs.training;
    change.devices = devices_of(change.program, job_of(whole_).devices);
    return change;
  }
  Change recovery_to(const SmallPrograms& programs, int number, const std::string& from) const {
    Change change = change_to(programs, number);
    change.recovery = Recovery{.generation = number - 1, .from = from};
    return change;
  }

  static void tell_all(const Processes& processes, const Change& change) {
    for (OrderedProcess* each : processes) each->tell(change);
  }

  const SmallPrograms whole_ = lower_small(model_, {{3, 1}});
  const SmallPrograms parts_ = lower_small(model_, {.samples = {1, 3}, .in_parts = true});
  const SmallPrograms second_alone_ = lower_small(model_, {{4}, {"a:1"}});
};

TEST_F(OrderReaderTest, APartHasRanksAndKeysOfItsOwn) {
  Job job = job_of(whole_);
  job.devices[1].local_index = 3;  // as found here
  const auto process = session_of(job, whole_, 1);
  const WorkerDevice first{.name = "a:0"}, second{.name = "a:1"}, other{.name = "a:2"};
  const auto none = open_part(*process, "x", {first, other}, {}, {});
  ASSERT_TRUE(none);
  EXPECT_TRUE((*none)->is_idle);
  EXPECT_EQ((*none)->rendezvous, nullptr);
  const auto alone = open_part(*process, "x", {second}, whole_.training, whole_.evaluations);
  ASSERT_TRUE(alone);
  EXPECT_FALSE((*alone)->is_idle);
  EXPECT_EQ((*alone)->rendezvous, nullptr);
  EXPECT_EQ((*alone)->process, 1);
  EXPECT_EQ((*alone)->rank, 0);
  EXPECT_EQ((*alone)->device().local_index, 3);
  EXPECT_EQ((*alone)->program, whole_.training);
  EXPECT_EQ((*alone)->evaluations, whole_.evaluations);
  EXPECT_EQ((*alone)->counts_every, process->counts_every);
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  const auto part = open_part(*process, "x", {other, first, second}, {}, {}, cancelled);
  ASSERT_TRUE(part);
  EXPECT_EQ((*part)->rank, 2);
  EXPECT_EQ((*part)->size, 3);
  EXPECT_EQ((*part)->rendezvous->rank(), 2);
  EXPECT_EQ((*part)->rendezvous->size(), 3);
  ASSERT_TRUE(process->rendezvous->set("key", "of the process"));
  EXPECT_EQ((*part)->rendezvous->get("key", Seconds(0.01)).error().code, "run.timeout");
  *cancelled = true;
  EXPECT_EQ((*part)->rendezvous->get("key", kSoon).error().code, "run.peer-lost");
}

/// A training that continues with what was taken, as in rank_generations.cc.
struct Generation {
  std::unique_ptr<WorkerSession> session, moving;
  std::unique_ptr<RankTraining> training;
};

Generation enter_next(OrderedProcess& process, TrainingPoint point, bool leads) {
  Generation generation;
  auto next = process.reader->take(kSoon);
  EXPECT_TRUE(next) << said_of(next);
  if (!next) return generation;
  const auto moved = next->mover->step(point.step, EmptyBatch());
  EXPECT_TRUE(moved) << said_of(moved);
  generation.session = std::move(next->session);
  generation.moving = std::move(next->moving);
  OrderReader::Present present{.model = next->handover.model, .status = process.status};
  present.leads = leads;
  if (!generation.session->is_idle) {
    next->handover.point = point;
    auto training = RankTraining::go_on(*generation.session, process.voice.reporter(),
                                        std::move(next->handover));
    EXPECT_TRUE(training) << said_of(training);
    generation.training = std::move(*training);
    present.tensors = generation.training->persistent();
  }
  EXPECT_TRUE(generation.moving->rendezvous->barrier("begun", kSoon));
  process.reader->set_present(std::move(present));
  return generation;
}

Change with_move(Change change, const program::Program& from,
                 const std::vector<WorkerDevice>& known) {
  const auto move = synth::lower_move(from, change.program, {.devices = {"a:0", "a:1"}});
  EXPECT_TRUE(move) << said_of(move);
  change.move = move->program;
  change.moving = devices_of(change.move, known);
  return change;
}

// Three steps with whole copies, two in parts, which are cut and moved, and three by a:1 alone,
// which gets a:0's parts.
TEST_F(OrderReaderTest, WhatAllPreparedIsTakenAndTrainsOn) {
  Job job = job_of(whole_);
  job.changes->at = {3, 5};
  const Processes processes = start(job, whole_);
  const Change first = with_move(change_to(parts_, 1), whole_.training, job.devices);
  const Change second = with_move(change_to(second_alone_, 2), parts_.training, job.devices);
  std::vector<std::thread> threads;
  for (OrderedProcess* each : processes)
    threads.emplace_back([&, process = each] {
      const bool leads = process->session->process == 0;
      const auto session =
          open_part(*process->session, "stint/0", job.devices, whole_.training, {});
      ASSERT_TRUE(session);
      const auto training = RankTraining::open(**session, process->voice.reporter());
      ASSERT_TRUE(training) << said_of(training);
      process->status = (*training)->status();
      process->reader->set_present({.model = (*training)->model(),
                                    .status = process->status,
                                    .tensors = (*training)->persistent(),
                                    .leads = leads});
      process->tell(first);
      process->tell(second);  // it is prepared afterwards
      ASSERT_EQ((*training)->run(3), RankTraining::End::kChanged);
      const Generation in_parts = enter_next(*process, (*training)->point(), leads);
      ASSERT_TRUE(in_parts.training);
      ASSERT_EQ(in_parts.training->run(5), RankTraining::End::kChanged);
      const Generation alone = enter_next(*process, in_parts.training->point(), !leads);
      EXPECT_EQ(alone.session->is_idle, leads);
      if (leads) return;
      EXPECT_EQ(alone.session->generation, 2);
      EXPECT_EQ(alone.training->run(), RankTraining::End::kFinished);
    });
  for (std::thread& thread : threads) thread.join();
  const DirectTraining wanted = DirectTraining(model_).run(8, 4);
  const std::vector<double> losses = processes[1]->voice.losses();
  ASSERT_EQ(losses.size(), 8u);
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], wanted.losses[i], 1e-5);
  const auto model = Safetensors::open(dir_ + "/run/model.safetensors");
  ASSERT_TRUE(model) << said_of(model);
  for (const auto& [name, tensor] : wanted.momenta) {
    const TensorView& view = model->tensors().at(name);
    const auto* floats = reinterpret_cast<const float*>(view.bytes.data());
    const testing::Tensor& weight = wanted.weight(name);
    for (std::size_t i = 0; i < weight.at.size(); ++i)
      ASSERT_NEAR(floats[i], weight.at[i], 1e-5 * std::max(1.0, std::abs(weight.at[i]))) << name;
  }
}

TEST_F(OrderReaderTest, TheLeadAsksForTheChangeWhenAllAreReady) {
  const Processes processes = start();
  processes[0]->tell(change_to(parts_, 1));
  processes[0]->show_present(true);
  // A process without a present to prepare from makes all wait.
  processes[1]->tell(change_to(parts_, 1));
  EXPECT_EQ(said_of(processes[0]->reader->take(Seconds(0.05))),
            "run.timeout: rank 0: the next program was not ready within 0.05 s");
  EXPECT_EQ(processes[0]->changes_requested, 0);
  processes[1]->show_present(false);
  for (OrderedProcess* each : processes) {
    const auto next = each->reader->take(kSoon);
    ASSERT_TRUE(next) << said_of(next);
    EXPECT_EQ(next->number, 1);
    EXPECT_EQ(next->follows, 0);
    EXPECT_EQ(next->session->generation, 1);
    EXPECT_TRUE(next->handover.some_have_parts);
    EXPECT_EQ(each->changes_requested, each->session->process == 0 ? 1 : 0);
  }
}

// The second needs the training's state after the first. In 0.3 s it could be prepared too early.
TEST_F(OrderReaderTest, OrdersArePreparedOneAfterTheOther) {
  const Processes processes = start();
  for (const int number : {1, 2}) tell_all(processes, change_to(parts_, number));
  for (const int number : {1, 2}) {
    EXPECT_EQ(said_of(processes[0]->reader->take(Seconds(0.3))),
              "run.timeout: rank 0: the next program was not ready within 0.3 s");
    for (OrderedProcess* each : processes) each->show_present(each->session->process == 0);
    for (int look = 0; look < 10000 && processes[0]->changes_requested < number; ++look)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (OrderedProcess* each : processes) {
      const auto next = each->reader->take(kSoon);
      ASSERT_TRUE(next) << said_of(next);
      EXPECT_EQ(next->number, number);
    }
  }
}

class RefusedOrders : public OrderReaderTest, public ::testing::WithParamInterface<int> {
 protected:
  /// Returns a program with an operator that one rank lacks.
  Change with_fault(int number) const {
    Change change = change_to(parts_, number);
    auto& instructions = change.program.devices[static_cast<std::size_t>(GetParam())].instructions;
    const auto relu = std::find_if(instructions.begin(), instructions.end(),
                                   [](const auto& each) { return each.op == "aten::relu"; });
    relu->op = "aten::nonsense";
    return change;
  }
  std::string fault() const {
    return fmt::format(
        "a:{}: 1 operator that this engine does not have: aten::nonsense; run with the PyTorch "
        "version that exported the model",
        GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(By, RefusedOrders, ::testing::Values(0, 1),
                         [](const auto& info) { return fmt::format("Rank{}", info.param); });

TEST_P(RefusedOrders, AreToldByTheFirstAndTrainingGoesOn) {
  const Processes processes = start();
  for (OrderedProcess* each : processes) each->show_present(each->session->process == 0);
  tell_all(processes, with_fault(1));
  tell_all(processes, change_to(parts_, 2));
  for (OrderedProcess* each : processes) {
    const auto next = each->reader->take(kSoon);
    ASSERT_TRUE(next) << said_of(next);
    EXPECT_EQ(next->number, 2);
  }
  EXPECT_EQ(processes[0]->changes_requested, 1);
  EXPECT_EQ(
      processes[0]->voice.events(),
      (std::vector<Json>{{{"event", "refused"}, {"rank", 0}, {"change", 1}, {"why", fault()}}}));
  EXPECT_THAT(processes[1]->voice.events(), IsEmpty());
}

TEST_P(RefusedOrders, ThatTrainingMustFollowEndItOnAll) {
  Job job = job_of(whole_);
  job.changes->at = {3};
  const Processes processes = start(job, whole_);
  for (OrderedProcess* each : processes) each->show_present(each->session->process == 0);
  tell_all(processes, with_fault(1));
  for (OrderedProcess* each : processes) {
    EXPECT_EQ(said_of(each->reader->take(kSoon)), "run.change: " + fault());
    EXPECT_EQ(each->changes_requested, 0);
  }
}

TEST_F(OrderReaderTest, WhoIsNotMeantNeitherPreparesNorIsWaitedFor) {
  const Processes processes = start();
  for (OrderedProcess* each : processes) each->show_present(false);
  Change change = recovery_to(second_alone_, 3, "new");
  change.processes = {1};
  tell_all(processes, change);
  ASSERT_TRUE(processes[1]->reader->take(kSoon));
  EXPECT_EQ(said_of(processes[0]->reader->take(Seconds(0))),
            "run.timeout: rank 0: the next program was not ready within 0 s");
  EXPECT_EQ(processes[0]->reader->next_follows(), std::nullopt);
}

// a:0 has no part in the program and is ready anyway.
TEST_F(OrderReaderTest, WhoHasNoPartInAProgramTakesItToo) {
  const Processes processes = start();
  for (OrderedProcess* each : processes) each->show_present(false);
  tell_all(processes, change_to(second_alone_, 1));
  for (OrderedProcess* each : processes) {
    const auto next = each->reader->take(kSoon);
    ASSERT_TRUE(next) << said_of(next);
    EXPECT_EQ(next->session->is_idle, each->session->process == 0);
    EXPECT_EQ(next->handover.executor == nullptr, each->session->process == 0);
    EXPECT_FALSE(next->handover.some_have_parts);
  }
}

TEST_F(OrderReaderTest, WhoComesLearnsWhatTheNextChangeFollowsOn) {
  const Processes processes = start();
  OrderedProcess& process = *processes[0];
  EXPECT_EQ(process.reader->next_follows(), std::nullopt);
  const auto await_follows = [&](int number) {
    for (int look = 0; look < 10000 && process.reader->next_follows() != number; ++look)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(process.reader->next_follows(), number);
  };
  process.lines.say(print_follow(4));
  await_follows(4);
  Change change = recovery_to(lower_small(model_, {{4}, {"a:0"}}), 7, "new");
  change.processes = {0};
  process.tell(change);  // in progress: there is nothing to prepare from yet
  await_follows(6);
  process.show_present(false);
  ASSERT_TRUE(process.reader->take(kSoon));
  await_follows(4);
  EXPECT_EQ(processes[1]->reader->next_follows(), std::nullopt) << "it heard nothing";
}

TEST_F(OrderReaderTest, SquaresAreCountedAsOftenAsItIsTold) {
  OrderedProcess& process = *start()[1];
  process.lines.say(print_counting(7));
  process.lines.say(print_follow(2));  // read after it
  for (int look = 0; look < 10000 && !process.reader->next_follows(); ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(process.session->counts_every->load(), 7);
}

TEST_F(OrderReaderTest, WhatDoesNotComeIsNamed) {
  OrderReader& reader = *start()[1]->reader;
  EXPECT_EQ(said_of(reader.await_halt(Seconds(0.01))),
            "run.timeout: rank 1: nobody said within 0.01 s how to go on");
  EXPECT_EQ(said_of(reader.await_recovery(Seconds(0.01))),
            "run.timeout: rank 1: no plan came within 0.01 s");
  EXPECT_EQ(said_of(reader.take(Seconds(0.01))),
            "run.timeout: rank 1: the next program was not ready within 0.01 s");
}

constexpr const char* kHalted = "run.halted: told to stop, as others were lost";

TEST_F(OrderReaderTest, AHaltWakesWhoeverWaits) {
  OrderedProcess& process = *start()[0];
  std::atomic<int> halted = 0;
  process.reader->set_halt([&] { ++halted; });
  std::string taken, recovered;
  std::thread taking([&] { taken = said_of(process.reader->take(kSoon)); });
  std::thread recovering([&] { recovered = said_of(process.reader->await_recovery(kSoon)); });
  process.lines.say(print_halt(3));
  taking.join();
  recovering.join();
  EXPECT_EQ(taken, kHalted);
  EXPECT_EQ(recovered, kHalted);
  EXPECT_TRUE(process.reader->is_halted());
  EXPECT_EQ(halted, 1);
  // A process that begins to wait now is notified at once.
  process.reader->set_halt([&] { halted += 10; });
  EXPECT_EQ(halted, 11);
  EXPECT_EQ(process.reader->await_halt(Seconds(0)), 3);
  EXPECT_FALSE(process.reader->is_halted());
  process.reader->set_halt([&] { halted += 100; });
  EXPECT_EQ(halted, 11);
  process.reader->set_halt(nullptr);
  process.lines.say(print_halt(4));
  EXPECT_EQ(process.reader->await_halt(kSoon), 4) << "and nothing is called";
  EXPECT_EQ(halted, 11);
}

// a:1 has died: the change never becomes ready. The recovery excludes a:1.
TEST_F(OrderReaderTest, AHaltDropsWhatIsPreparedAndARecoveryFollows) {
  OrderedProcess& process = *start()[0];
  process.show_present(true);
  process.tell(change_to(parts_, 1));
  process.tell(change_to(parts_, 2));
  for (int look = 0; look < 10000 && process.reader->next_follows() != 0; ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  process.lines.say(print_halt(1));
  EXPECT_EQ(process.reader->await_halt(kSoon), 1);
  EXPECT_EQ(process.reader->next_follows(), std::nullopt);
  Change recovery = recovery_to(lower_small(model_, {{4}, {"a:0"}}), 3, "new");
  recovery.recovery->stops = true;
  recovery.recovery->point.step = 5;
  recovery.processes = {0};
  process.tell(recovery);
  const auto heard = process.reader->await_recovery(kSoon);
  ASSERT_TRUE(heard) << said_of(heard);
  EXPECT_EQ(*heard, *recovery.recovery);
  const auto next = process.reader->take(kSoon);
  ASSERT_TRUE(next) << said_of(next);
  EXPECT_EQ(next->number, 3);
  EXPECT_EQ(process.changes_requested, 0) << "nobody trains";
  EXPECT_EQ(process.voice.events(),
            (std::vector<Json>{{{"event", "heard"}, {"rank", 0}, {"halt", 1}}}));
  EXPECT_EQ(said_of(process.reader->await_recovery(Seconds(0))),
            "run.timeout: rank 0: no plan came within 0 s");
}

TEST_F(OrderReaderTest, AHaltDropsARecoveryThatWasNotHeard) {
  OrderedProcess& process = *start()[0];
  process.tell(recovery_to(second_alone_, 1, "new"));
  process.lines.say(print_halt(2));
  EXPECT_EQ(process.reader->await_halt(kSoon), 2);
  EXPECT_EQ(said_of(process.reader->await_recovery(Seconds(0))),
            "run.timeout: rank 0: no plan came within 0 s");
}

// A prepared change that was not entered can be halted too.
TEST_F(OrderReaderTest, WaitsForTheOthersOfTheNextProgramCanBeEnded) {
  const Processes processes = start();
  for (OrderedProcess* each : processes) each->show_present(false);
  tell_all(processes, change_to(parts_, 1));
  auto next = processes[0]->reader->take(kSoon);
  ASSERT_TRUE(next) << said_of(next);
  next->halt();
  EXPECT_EQ(next->session->rendezvous->get("begun", kSoon).error().code, "run.peer-lost");
  ASSERT_TRUE(processes[1]->reader->take(kSoon));
}

// Two ranks with whole copies saved step 2; a:0 in parts with a:1 continues from there.
TEST_F(OrderReaderTest, ARecoveryFromACheckpointHasItsTensors) {
  const Job job = job_of(whole_, 2);
  run_ranks(job, whole_, [](WorkerSession& session, const Reporter& reporter) {
    const auto training = RankTraining::open(session, reporter);
    ASSERT_TRUE(training) << said_of(training);
    ASSERT_TRUE((*training)->run());
  });
  forget_meeting();
  const Processes processes = start(job_of(whole_, 4), whole_);
  Change change = recovery_to(parts_, 1, dir_ + "/run/checkpoint/step-00000002");
  change.recovery->point = {.step = 2, .samples = 8, .saved_step = 2};
  for (OrderedProcess* each : processes) each->show_present(false);
  tell_all(processes, change);
  std::vector<std::thread> threads;
  for (OrderedProcess* each : processes)
    threads.emplace_back([process = each] {
      const auto recovery = process->reader->await_recovery(kSoon);
      ASSERT_TRUE(recovery) << said_of(recovery);
      auto next = process->reader->take(kSoon);
      ASSERT_TRUE(next) << said_of(next);
      next->handover.point = recovery->point;
      const auto training =
          RankTraining::go_on(*next->session, process->voice.reporter(), std::move(next->handover));
      ASSERT_TRUE(training) << said_of(training);
      EXPECT_EQ((*training)->run(), RankTraining::End::kFinished);
    });
  for (std::thread& thread : threads) thread.join();
  const DirectTraining wanted = DirectTraining(model_).run(4, 4);
  const std::vector<double> losses = processes[1]->voice.losses();
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_NEAR(losses[0], wanted.losses[2], 1e-5);
  EXPECT_NEAR(losses[1], wanted.losses[3], 1e-5) << "with its momenta";
}

TEST_F(OrderReaderTest, AfterTheLossOfTheLeadProcessesMeetWhereTheyAreTold) {
  const auto server = KeyServer::start();
  ASSERT_TRUE(server) << said_of(server);
  const Processes processes = start();
  Change change = recovery_to(parts_, 1, "new");
  change.keys = StoreAddress{"127.0.0.1", (*server)->port(), (*server)->word()};
  forget_meeting();  // it was lost with the coordinator
  for (OrderedProcess* each : processes) each->show_present(false);
  tell_all(processes, change);
  for (OrderedProcess* each : processes) {
    const auto next = each->reader->take(kSoon);
    ASSERT_TRUE(next) << said_of(next);
    EXPECT_EQ(each->session->rendezvous->options().keys, change.keys);
  }
}

// GoogleTest runs suites of this name first, before there are threads that a fork would lose.
using OrderReaderDeathTest = OrderReaderTest;

TEST_F(OrderReaderDeathTest, AnUnknownOrderEndsTheProcess) {
  const auto session = session_of(job_of(whole_), whole_, 0);
  const auto obey = [&](const std::string& line) {
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    const Reporter reporter;
    OrderLines lines;
    std::istream stream(&lines);
    const auto reader = OrderReader::start(*session, reporter, stream);
    lines.say(line);
    std::this_thread::sleep_for(std::chrono::seconds(10));
    std::_Exit(0);
  };
  EXPECT_EXIT(obey(R"({"dance": 1})"), ::testing::ExitedWithCode(2),
              R"("code":"json.missing-key","message":"order: key 'change' is missing")");
}

}  // namespace
}  // namespace motley::run

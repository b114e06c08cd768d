#include "motley/run/change.h"

#include <gtest/gtest.h>

#include "motley/base/json_fields.h"
#include "motley/program/program_text.h"

namespace motley::run {
namespace {

program::Program two_devices() {
  return program::parse_program(R"(motley.program/1
model "m" plan "p" global_batch 3
group 0: 0 1
device "a:0" samples 2 first 0
buffer %0: parameter f32[2] "w"
transfer ^0: motley::all_reduce(%0) group 0
device "b:0" samples 1 first 2
buffer %0: parameter f32[2] "w"
transfer ^0: motley::all_reduce(%0) group 0
)",
                                "test")
      .value();
}

Change change() {
  Change made;
  made.number = 3;
  made.program = made.move = two_devices();
  made.evaluations = {two_devices()};
  made.devices = {{.name = "a:0", .kind = "cpu", .slow = {{2, 5, 1.5}}},
                  {.name = "b:0", .kind = "cpu", .speed = 0.5}};
  made.moving = {{.name = "b:0", .kind = "cpu", .host = "there"}};
  return made;
}

TEST(Change, AWorkerIsToldItsOwnInstructions) {
  const ChangeOrder order = parse_order(print_order(change(), "b:0")).value();
  EXPECT_EQ(order.number, 3);
  EXPECT_EQ(order.devices, change().devices);
  EXPECT_EQ(order.moving, change().moving) << "of which its own job need not know";
  const program::Program own = program::own_program(two_devices(), Rank(1));
  EXPECT_EQ(order.program, own);
  EXPECT_EQ(order.move, own);
  ASSERT_EQ(order.evaluations.size(), 1u);
  EXPECT_EQ(order.evaluations[0], own);
  EXPECT_TRUE(order.program.devices[0].instructions.empty());
  EXPECT_FALSE(order.program.devices[1].instructions.empty());
}

TEST(Change, AWorkerThatTheProgramDoesNotUseLearnsWhoIsInIt) {
  const ChangeOrder order = parse_order(print_order(change(), "c:0")).value();
  ASSERT_EQ(order.program.devices.size(), 2u);
  for (const program::DeviceProgram& device : order.program.devices) {
    EXPECT_TRUE(device.instructions.empty());
    EXPECT_TRUE(device.is_elsewhere);
  }
}

TEST(Change, AnOrderSaysWhatItFollowsAndWhoHearsIt) {
  Change made = change();
  EXPECT_EQ(parse_order(print_order(made, "a:0"))->recovery, std::nullopt);
  EXPECT_TRUE(parse_order(print_order(made, "a:0"))->processes.empty());
  made.after = 2;
  made.processes = {0, 3, 4};
  made.lr_factor = 1.75;
  made.recovery =
      Recovery{.generation = 2, .point = {.step = 7, .evaluated_step = 5}, .stops = true};
  const ChangeOrder order = parse_order(print_order(made, "a:0")).value();
  EXPECT_EQ(order.after, 2);
  EXPECT_EQ(order.processes, made.processes);
  EXPECT_EQ(order.lr_factor, 1.75);
  EXPECT_EQ(order.recovery, made.recovery);
  EXPECT_EQ(order.halt, 0);
  EXPECT_EQ(order.move, program::own_program(two_devices(), Rank(0)));
}

TEST(Change, WhatIsLoadedIsNotMoved) {
  Change made = change();
  for (const char* from : {"new", "run/checkpoint/step-00000005"}) {
    made.recovery = Recovery{.point = {.step = 5}, .from = from};
    const ChangeOrder order = parse_order(print_order(made, "a:0")).value();
    EXPECT_EQ(order.recovery, made.recovery);
    EXPECT_EQ(order.move, program::Program()) << "even where one was made";
    EXPECT_EQ(order.program.devices.size(), 2u);
  }
}

TEST(Change, AHaltIsNothingButThat) {
  const ChangeOrder order = parse_order(print_halt(4)).value();
  EXPECT_EQ(order.halt, 4);
  EXPECT_EQ(order.number, 0);
  EXPECT_FALSE(order.recovery);
  EXPECT_EQ(print_halt(4).find('\n'), std::string::npos) << "one line";
  EXPECT_FALSE(parse_order(R"({"halt": 4, "change": 1})"));
  EXPECT_FALSE(parse_order(R"({"halt": "4"})"));
}

TEST(Change, AnOrderSaysInWhichStepsSquaresAreCounted) {
  EXPECT_EQ(parse_order(print_counting(16))->counts_every, 16);
  EXPECT_EQ(parse_order(R"({"counts_every": 0})").error().message,
            "order: key 'counts_every': wanted at least 1");
  EXPECT_FALSE(parse_order(R"({"counts_every": 2, "halt": 1})"));
}

// A line of any other form is an error with a reason and never crashes a worker.
TEST(Change, OrdersOfAnotherFormAreErrors) {
  const Json good = Json::parse(print_order(change(), "a:0"));
  for (const auto& [key, value] : good.items()) {
    Json bad = good;
    bad.erase(key);
    EXPECT_EQ(parse_order(bad.dump()).error().message, "order: key '" + key + "' is missing");
    for (const Json& other : {Json(true), Json("x"), Json({{"a", 1}}), Json({"a"})}) {
      bad[key] = other;
      EXPECT_FALSE(parse_order(bad.dump())) << key << " " << other.dump();
    }
  }
  Json more = good;
  more["colour"] = 1;
  EXPECT_FALSE(parse_order(more.dump()));
}

TEST(Change, APointSurvivesItsText) {
  const TrainingPoint points[] = {{},
                                  {.step = 7,
                                   .samples = 280,
                                   .elapsed_s = 1.5,
                                   .saved_step = 5,
                                   .saved_path = "run/checkpoint/step-00000005",
                                   .evaluated_step = 4,
                                   .best = Best{.value = 0.5, .step = 4, .worse_since = 1}}};
  for (const TrainingPoint& point : points)
    EXPECT_EQ(fields_from_json<TrainingPoint>(fields_to_json(point), "point").value(), point);
}

// Half the speed from second 2 to 5, a third of it from 4 on: 0.8, 0.4, 0.4 / 3, 0.8 / 3.
TEST(Change, SlownessesThatOverlapMultiply) {
  const WorkerDevice device{
      .name = "a:0", .kind = "cpu", .speed = 0.8, .slow = {{2, 5, 2}, {4, 9, 3}}};
  EXPECT_DOUBLE_EQ(device.speed_at(1.9), 0.8);
  EXPECT_DOUBLE_EQ(device.speed_at(2), 0.4);
  EXPECT_DOUBLE_EQ(device.speed_at(4), 0.4 / 3);
  EXPECT_DOUBLE_EQ(device.speed_at(5), 0.8 / 3);
  EXPECT_DOUBLE_EQ(device.speed_at(9), 0.8);
  EXPECT_EQ(fields_from_json<WorkerDevice>(fields_to_json(device), "d").value(), device);
}

}  // namespace
}  // namespace motley::run

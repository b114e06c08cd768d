#include "motley/report/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "motley/base/json.h"
#include "motley/report/page/layer_names.h"
#include "motley/report/page/page_parts.h"
#include "motley/report/page/picture.h"

namespace motley::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// b:0 is late for the sum that both join, by 20 of 65.
trace::Trace late_by_twenty() {
  return trace::parse_trace(R"(motley.trace/1
source measured
device "a:0"
name ^0 "aten::mm h.0.fc"
name ^1 "motley::all_reduce bucket 0"
step 0 0 65 peak 0
compute 0 ^0 0 40
transfer 0 ^1 40 65 bytes 8
device "b:0"
name ^0 "aten::mm h.0.fc"
name ^1 "motley::all_reduce bucket 0"
step 0 0 65 peak 0
compute 0 ^0 0 60
transfer 0 ^1 60 65 bytes 8
)",
                            "test")
      .value();
}

/// Something of everything.
Story full_story() {
  Story story{.title = "runs/x", .state = "failed", .verdict = "It failed."};
  story.samples = {{"a:0", 3}, {"b:0", 5}};
  story.timelines = {{"measured", "3:5", Seconds(65e-9), late_by_twenty()}};
  story.memory = {{"a:0", Bytes(100), Bytes(60), Bytes(50), {{"parameters", Bytes(50)}}}};
  story.links = {{"a>b", BytesPerSecond(1e9), Bytes(123), 0.25}};
  story.layers = {{"h.0", "samples 3:5", {40e-9, 60e-9}}};
  story.stages = {{0, 0, {"a:0"}, 7, 8, 2}};
  story.neighbours = {{kThisPlan, Seconds(1), true}, {"equal split", Seconds(2), false}};
  story.ranks = {{0, "a:0", false, 4, "step 4, ^1 aten::mm"}};
  story.curves = {{"loss", "", {{0, 2.5}, {1, 1.25}}, {}}};
  story.command = "motley run";
  return story;
}

std::string page_of(const Story& story) { return print_page(story, print_sections(story)); }

TEST(Page, EachNumberOfATableIsThatOfTheJson) {
  const Story story = full_story();
  const Json json = story_to_json(story);
  const std::string page = page_of(story);
  const std::regex cell("data-key=\"([^\"]*)\" data-value=\"([^\"]*)\"");
  int cells = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), cell), end; at != end; ++at, ++cells) {
    const Json& there = json.at(Json::json_pointer((*at)[1].str()));
    EXPECT_EQ(there.get<double>(), std::stod((*at)[2].str())) << (*at)[1];
  }
  EXPECT_GE(cells, 20);
}

TEST(Page, SaysWhoWaitsForWhom) {
  EXPECT_EQ(waiting_sentence(full_story()),
            "a:0 waits longest: 20 ns of each step (31 %) for b:0.");
  EXPECT_THAT(page_of(full_story()), HasSubstr("waits for b:0"));
}

TEST(Page, WhatFilesSayIsNoMarkup) {
  const std::string evil = "<img src=x onerror=\"alert('1')\">&\n";
  Story story = full_story();
  story.title = story.verdict = story.command = evil;
  story.remarks = {evil};
  story.timelines[0].trace.devices = {evil, evil};
  story.timelines[0].name = story.timelines[0].caption = evil;
  story.timelines[0].trace.names[0].push_back(evil);
  story.memory[0].device = story.memory[0].parts[0].first = evil;
  story.links[0].name = story.layers[0].layer = story.layers[0].cut = evil;
  story.stages[0].devices = {evil};
  story.neighbours[1].label = story.ranks[0].device = story.ranks[0].where = evil;
  story.curves[0].name = evil;
  const std::string page = page_of(story);
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("onerror=\"")));
  EXPECT_THAT(page, HasSubstr("&lt;img src=x onerror=&quot;alert(&#39;1&#39;)&quot;&gt;&amp; "));
}

TEST(Page, HasAllPicturesTwiceAndATableForEach) {
  for (const Section& each : print_sections(full_story())) {
    if (each.id == "head" || each.id == "command") continue;
    EXPECT_THAT(each.html, HasSubstr("class=\"wide\"><svg")) << each.id;
    EXPECT_THAT(each.html, HasSubstr("class=\"narrow\"><svg")) << each.id;
    EXPECT_THAT(each.html, HasSubstr("<tbody><tr>")) << each.id;
  }
}

TEST(Page, MicroBatchesAreToldApartWhereThereAreSeveral) {
  Story story = full_story();
  story.timelines[0].passes = {{{2, false}, {}}, {{2, true}, {}}};
  story.stages = {{0, 0, {"a:0"}, 7, 8, 3}, {0, 1, {"b:0"}, 7, 8, 3}, {0, 2, {"a:0"}, 7, 8, 3}};
  const std::string wide = draw_timelines(story)->wide;
  for (const char* each : {">2<", ">2b<", "micro-batch 2, backward", "stages 0.0, 0.2: computes",
                           "stage 0.1: computes"})
    EXPECT_THAT(wide, HasSubstr(each));
  EXPECT_THAT(wide, Not(HasSubstr(">h.0<")));
  EXPECT_THAT(draw_timelines(story)->legend, HasSubstr("backward"));
  EXPECT_THAT(draw_timelines(full_story())->legend, Not(HasSubstr("backward")));
}

TEST(Page, APictureAloneIsAFile) {
  const std::string picture = print_step_picture(full_story()).value();
  EXPECT_THAT(picture,
              StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-16 -16 932 "));
  for (const char* each : {"prefers-color-scheme:dark", "id=\"hatch\"", "waits for b:0", "h.0",
                           "exchange under way", "class=\"ground\""})
    EXPECT_THAT(picture, HasSubstr(each));
  for (const char* each : {"<script", "<figure", "data-key", "href"})
    EXPECT_THAT(picture, Not(HasSubstr(each)));
  EXPECT_EQ(print_step_picture({.title = "x", .state = "prepared", .verdict = ""}), std::nullopt);
}

TEST(Page, AStillOneConnectsToNothing) {
  EXPECT_THAT(page_of(full_story()), HasSubstr("connect-src 'none'"));
  EXPECT_THAT(page_of(full_story()), Not(HasSubstr("EventSource")));
  EXPECT_LT(kZoomScript.size() + kLiveScript.size(), 40000u);
}

TEST(Page, OfManyStepsNoneThatStandsOutIsLost) {
  Story story{.title = "x", .state = "finished", .verdict = ""};
  Curve curve{"loss", "", {}, {}};
  for (int step = 0; step < 10000; ++step)
    curve.points.emplace_back(step, step == 5003 ? 9.0 : 1.0);
  story.curves = {curve};
  const std::string wide = draw_curves(story)[0].wide;
  EXPECT_LT(wide.size(), 40000u);
  // 9 is the largest value: 0.05 of the span of 8 below the upper end, of 182 pixels from 12 on.
  EXPECT_THAT(wide, HasSubstr(" 20.3L"));
}

TEST(Page, ACurveHasItsPlaceBeforeItHasPoints) {
  Story story{.title = "x", .state = "running", .verdict = ""};
  story.curves = {{"loss", "", {}, {}}};
  EXPECT_THAT(page_of(story),
              HasSubstr("<section id=\"curve-0\"><h2>Loss, step by step</h2><p>No step"));
}

TEST(Page, AnEmptyStoryIsAPage) {
  EXPECT_THAT(page_of({.title = "x", .state = "prepared", .verdict = "Nothing."}),
              HasSubstr("Nothing."));
}

TEST(LayerNames, EndAtTheFirstNumberOrTheFirstWord) {
  EXPECT_EQ(layer_of("aten::mm h.3.attn.qkv"), "h.3");
  EXPECT_EQ(layer_of("aten::embedding wte"), "wte");
  EXPECT_EQ(layer_of("aten::mm fc.weight"), "fc");
  EXPECT_EQ(layer_of("motley::update bucket 0"), "update");
  EXPECT_EQ(layer_of("aten::slice.Tensor bucket 0"), "update");
  EXPECT_EQ(layer_of("motley::load load x"), "batch");
  EXPECT_EQ(layer_of("aten::view"), "batch");
}

TEST(Fit, CutsWholeCharacters) {
  EXPECT_EQ(fit("short", 100), "short");
  EXPECT_EQ(fit("abcdefgh", 33), "abcd\u2026");
  EXPECT_EQ(fit("abc\u00e9\u00e9\u00e9\u00e9", 33), "abc\u2026");
  EXPECT_EQ(fit("abcdefgh", 5), "");
}

}  // namespace
}  // namespace motley::report

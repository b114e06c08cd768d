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

/// b:0 is late by 20 of 65 for the sum that both join.
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

/// Fills every part of a report.
ReportData full_report_data() {
  ReportData report_data{.title = "runs/x", .state = "failed", .verdict = "It failed."};
  report_data.samples = {{"a:0", 3}, {"b:0", 5}};
  report_data.timelines = {{"measured", "3:5", Seconds(65e-9), late_by_twenty()}};
  report_data.memory = {{"a:0", Bytes(100), Bytes(60), Bytes(50), {{"parameters", Bytes(50)}}}};
  report_data.links = {{"a>b", BytesPerSecond(1e9), Bytes(123), 0.25}};
  report_data.layers = {{"h.0", "samples 3:5", {40e-9, 60e-9}}};
  report_data.stages = {{0, 0, {"a:0"}, 7, 8, 2}};
  report_data.neighbours = {{kThisPlan, Seconds(1), true}, {"equal split", Seconds(2), false}};
  report_data.ranks = {{0, "a:0", false, 4, "step 4, ^1 aten::mm"}};
  report_data.curves = {{"loss", "", {{0, 2.5}, {1, 1.25}}, {}}};
  report_data.command = "motley run";
  return report_data;
}

std::string page_of(const ReportData& report_data) {
  return print_page(report_data, print_sections(report_data));
}

TEST(Page, EachNumberOfATableIsThatOfTheJson) {
  const ReportData report_data = full_report_data();
  const Json json = report_data_to_json(report_data);
  const std::string page = page_of(report_data);
  const std::regex cell("data-key=\"([^\"]*)\" data-value=\"([^\"]*)\"");
  int cells = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), cell), end; at != end; ++at, ++cells) {
    const Json& there = json.at(Json::json_pointer((*at)[1].str()));
    EXPECT_EQ(there.get<double>(), std::stod((*at)[2].str())) << (*at)[1];
  }
  EXPECT_GE(cells, 20);
}

TEST(Page, SaysWhoWaitsForWhom) {
  EXPECT_EQ(waiting_sentence(full_report_data()),
            "a:0 waits longest: 20 ns of each step (31 %) for b:0.");
  EXPECT_THAT(page_of(full_report_data()), HasSubstr("waits for b:0"));
}

TEST(Page, WhatFilesSayIsNoMarkup) {
  const std::string evil = "<img src=x onerror=\"alert('1')\">&\n";
  ReportData report_data = full_report_data();
  report_data.title = report_data.verdict = report_data.command = evil;
  report_data.remarks = {evil};
  report_data.timelines[0].trace.devices = {evil, evil};
  report_data.timelines[0].name = report_data.timelines[0].caption = evil;
  report_data.timelines[0].trace.names[0].push_back(evil);
  report_data.memory[0].device = report_data.memory[0].parts[0].first = evil;
  report_data.links[0].name = report_data.layers[0].layer = report_data.layers[0].cut = evil;
  report_data.stages[0].devices = {evil};
  report_data.neighbours[1].label = report_data.ranks[0].device = report_data.ranks[0].where = evil;
  report_data.curves[0].name = evil;
  const std::string page = page_of(report_data);
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("onerror=\"")));
  EXPECT_THAT(page, HasSubstr("&lt;img src=x onerror=&quot;alert(&#39;1&#39;)&quot;&gt;&amp; "));
}

TEST(Page, HasAllPicturesTwiceAndATableForEach) {
  for (const Section& each : print_sections(full_report_data())) {
    if (each.id == "head" || each.id == "command") continue;
    EXPECT_THAT(each.html, HasSubstr("class=\"wide\"><svg")) << each.id;
    EXPECT_THAT(each.html, HasSubstr("class=\"narrow\"><svg")) << each.id;
    EXPECT_THAT(each.html, HasSubstr("<tbody><tr>")) << each.id;
  }
}

TEST(Page, MicroBatchesAreToldApartWhereThereAreSeveral) {
  ReportData report_data = full_report_data();
  report_data.timelines[0].passes = {{{2, false}, {}}, {{2, true}, {}}};
  report_data.stages = {
      {0, 0, {"a:0"}, 7, 8, 3}, {0, 1, {"b:0"}, 7, 8, 3}, {0, 2, {"a:0"}, 7, 8, 3}};
  const std::string wide = draw_timelines(report_data)->wide;
  for (const char* each : {">2<", ">2b<", "micro-batch 2, backward", "stages 0.0, 0.2: computes",
                           "stage 0.1: computes"})
    EXPECT_THAT(wide, HasSubstr(each));
  EXPECT_THAT(wide, Not(HasSubstr(">h.0<")));
  EXPECT_THAT(draw_timelines(report_data)->legend, HasSubstr("backward"));
  EXPECT_THAT(draw_timelines(full_report_data())->legend, Not(HasSubstr("backward")));
}

TEST(Page, APictureAloneIsAFile) {
  const std::string picture = print_step_picture(full_report_data()).value();
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
  EXPECT_THAT(page_of(full_report_data()), HasSubstr("connect-src 'none'"));
  EXPECT_THAT(page_of(full_report_data()), Not(HasSubstr("EventSource")));
  EXPECT_LT(kZoomScript.size() + kLiveScript.size(), 40000u);
}

TEST(Page, OfManyStepsNoneThatStandsOutIsLost) {
  ReportData report_data{.title = "x", .state = "finished", .verdict = ""};
  Curve curve{"loss", "", {}, {}};
  for (int step = 0; step < 10000; ++step)
    curve.points.emplace_back(step, step == 5003 ? 9.0 : 1.0);
  report_data.curves = {curve};
  const std::string wide = draw_curves(report_data)[0].wide;
  EXPECT_LT(wide.size(), 40000u);
  // 9 is the largest value: 0.05 of the span of 8 below the upper end of 182 pixels from 12 on.
  EXPECT_THAT(wide, HasSubstr(" 20.3L"));
}

TEST(Page, ACurveHasItsPlaceBeforeItHasPoints) {
  ReportData report_data{.title = "x", .state = "running", .verdict = ""};
  report_data.curves = {{"loss", "", {}, {}}};
  EXPECT_THAT(page_of(report_data),
              HasSubstr("<section id=\"curve-0\"><h2>Loss, step by step</h2><p>No step"));
}

TEST(Page, EmptyReportDataIsAPage) {
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

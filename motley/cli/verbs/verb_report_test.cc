#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <regex>
#include <sstream>

#include "motley/base/text.h"
#include "motley/control/run_directory.h"
#include "motley/run/hosts/status.h"
#include "motley/testing/verb_calls.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

/// A run of three steps on three emulated devices with traces: a fifth slower than predicted,
/// except that everything but matrix products takes half of that.
class ReportVerbTest : public VerbTest {
 protected:
  ReportVerbTest() {
    workers_.per_byte = 1e-7;
    write_cluster(control::kEmulated);
    for (std::int64_t step = 0; step < 3; ++step)
      workers_.events.push_back(control::step_event(2, step, 0.5, 0.25));
    EXPECT_EQ(call({"run", "-m", model_, "-C", cluster_, "--global-batch", "60", "--batch-split",
                    "34,17,9", "--adapt", "none", "--data", data_, "--steps", "3", "--run-dir",
                    run_dir_}),
              kDone)
        << err_;
    leave_traces();
  }
  void leave_traces() const {
    const control::RunDirectory directory{run_dir_};
    const trace::Trace predicted =
        trace::parse_trace(read_file(directory.predicted()).value(), "predicted").value();
    fs::create_directories(run_dir_ + "/trace");
    for (std::size_t d = 0; d < predicted.devices.size(); ++d) {
      trace::Trace own{.source = trace::Source::kMeasured,
                       .devices = {predicted.devices[d]},
                       .names = {predicted.names[d]}};
      for (trace::Interval each : predicted.intervals) {
        if (each.device != static_cast<int>(d)) continue;
        const std::string& name = own.names[0][each.instruction.index()];
        const bool is_quick = each.lane == Lane::kCompute && name.find("mm") == std::string::npos;
        const trace::Nanoseconds takes = (each.end - each.begin) * 6 / 5;
        each.device = 0;
        each.begin = each.begin * 6 / 5;
        each.end = each.begin + (is_quick ? takes / 2 : takes);
        own.intervals.push_back(each);
      }
      for (trace::StepMark each : predicted.steps) {
        if (each.device != static_cast<int>(d)) continue;
        each.device = 0;
        each.begin = each.begin * 6 / 5;
        each.end = each.end * 6 / 5;
        own.steps.push_back(each);
      }
      EXPECT_TRUE(write_file_atomic(directory.measured(d), trace::print_trace(own)));
    }
  }
  Json report(const std::string& subject, const Words& more = {}) {
    Words words = {"report", subject};
    words.insert(words.end(), more.begin(), more.end());
    return answer(words);
  }
  std::string lines_of(const std::string& subject) {
    EXPECT_EQ(call({"report", subject}), kDone) << err_;
    return out_;
  }
  std::string copied(const std::string& name) const {
    fs::copy(run_dir_, directory_.file(name), fs::copy_options::recursive);
    return directory_.file(name);
  }
  /// Expects the page's numbers to equal the figures, and the page to fetch nothing.
  static void expect_page(const std::string& path, const Json& figures) {
    const std::string page = read_file(path).value();
    const std::regex cell("data-key=\"([^\"]*)\" data-value=\"([^\"]*)\"");
    int cells = 0;
    for (std::sregex_iterator at(page.begin(), page.end(), cell), end; at != end; ++at, ++cells)
      EXPECT_EQ(figures.at(Json::json_pointer((*at)[1].str())).get<double>(),
                std::stod((*at)[2].str()))
          << (*at)[1];
    EXPECT_GT(cells, 20);
    const std::regex link("(src|href)=\"(?!data:)[^\"]");
    EXPECT_FALSE(std::regex_search(page, link));
  }

  const std::string page_ = directory_.file("page.html");
};

/// Rows of a text, each a name and numbers, below the line that begins with `head`.
std::vector<std::pair<std::string, std::vector<double>>> rows_below(const std::string& text,
                                                                    const std::string& head) {
  std::vector<std::pair<std::string, std::vector<double>>> rows;
  bool is_below = false;
  for (const std::string_view line : split(text, '\n')) {
    if (is_below && trim(line).empty()) break;
    if (is_below) {
      std::string plain(line);
      std::erase(plain, '%');
      std::istringstream words(plain);
      auto& [name, numbers] = rows.emplace_back();
      words >> name;
      for (double number = 0; words >> number;) numbers.push_back(number);
    }
    is_below = is_below || line.starts_with(head);
  }
  return rows;
}

TEST_F(ReportVerbTest, AFinishedRunIsAPage) {
  const Json figures = report(run_dir_, {"-o", page_});
  EXPECT_EQ(figures.at("state"), "finished");
  EXPECT_EQ(figures.at("page"), page_);
  EXPECT_EQ(figures.at("timelines").at(0).at("name"), "predicted");
  EXPECT_EQ(figures.at("timelines").at(1).at("name"), "measured");
  EXPECT_THAT(figures.at("command").get<std::string>(), StartsWith("motley run -m "));
  EXPECT_LT(fs::file_size(page_), 300000);
  expect_page(page_, figures);
}

TEST_F(ReportVerbTest, SharesAreThoseOfTheText) {
  const Json figures = report(run_dir_);
  const std::string text = lines_of(run_dir_);
  const auto times = rows_below(text, "  of a step ");
  const Json& shares = figures.at("time_shares");
  ASSERT_EQ(times.size(), 3U);
  ASSERT_EQ(shares.size(), 3U);
  for (std::size_t d = 0; d < 3; ++d) {
    EXPECT_EQ(times[d].first, fmt::format("a:{}", d));
    EXPECT_EQ(shares[d].at("name"), times[d].first);
    std::vector<double> wanted;
    double predicted = 0, measured = 0;
    for (const char* part : {"compute_share", "exchange_share", "waiting_share", "idle_share"}) {
      predicted += shares[d].at("predicted").at(part).get<double>();
      measured += shares[d].at("measured").at(part).get<double>();
      wanted.push_back(100 * shares[d].at("predicted").at(part).get<double>());
      wanted.push_back(100 * shares[d].at("measured").at(part).get<double>());
    }
    EXPECT_NEAR(predicted, 1, 1e-9);
    EXPECT_NEAR(measured, 1, 1e-9);
    EXPECT_THAT(times[d].second, ::testing::Pointwise(::testing::DoubleNear(0.051), wanted));
  }
  const Json& operators = figures.at("operator_shares");
  ASSERT_GT(operators.size(), 10U);
  const auto rows = rows_below(text, "  operators, of what");
  ASSERT_GE(rows.size(), 10U);
  double predicted = 0, measured = 0, off = 1;
  for (std::size_t i = 0; i < operators.size(); ++i) {
    const double thought = operators[i].at("predicted"), came = operators[i].at("measured");
    predicted += thought;
    measured += came;
    EXPECT_LE(std::abs(thought - came), off);
    off = std::abs(thought - came);
    if (i >= 10) continue;
    EXPECT_EQ(operators[i].at("name"), rows[i].first);
    const std::vector<double> wanted = {100 * thought, 100 * came, 100 * (thought - came)};
    EXPECT_THAT(rows[i].second, ::testing::Pointwise(::testing::DoubleNear(0.051), wanted));
  }
  EXPECT_NEAR(predicted, 1, 1e-9);
  EXPECT_NEAR(measured, 1, 1e-9);
  EXPECT_LT(operators[0].at("predicted"), operators[0].at("measured"));
}

/// Names of the elements; expects that all are closed properly.
std::set<std::string> elements_of(const std::string& markup) {
  std::set<std::string> names;
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-zA-Z]+)([^<>]*?)(/?)>");
  for (std::sregex_iterator at(markup.begin(), markup.end(), tag), end; at != end; ++at) {
    const std::string name = (*at)[2];
    if ((*at)[1] == "/") {
      EXPECT_FALSE(open.empty() || open.back() != name) << name;
      if (!open.empty()) open.pop_back();
      continue;
    }
    names.insert(name);
    if ((*at)[4] != "/") open.push_back(name);
  }
  EXPECT_THAT(open, IsEmpty());
  return names;
}

TEST_F(ReportVerbTest, AStepIsAPicture) {
  const std::string picture = directory_.file("step.svg");
  EXPECT_EQ(report(run_dir_, {"-o", picture}).at("picture"), picture);
  EXPECT_THAT(elements_of(read_file(picture).value()),
              ::testing::IsSupersetOf({"svg", "style", "rect", "text"}));
  for (const char* name : {"<script", "<a ", "<image", "<foreignObject"})
    EXPECT_THAT(read_file(picture).value(), Not(HasSubstr(name)));
  const std::string prepared = copied("prepared");
  fs::remove(prepared + "/predicted.txt");
  fs::remove_all(prepared + "/trace");
  EXPECT_EQ(refusal({"report", prepared, "-o", picture}),
            "2 " + prepared +
                ": no step of it was recorded, so there is no picture of one; -o FILE.html writes "
                "what is known [report.no-step]");
}

TEST_F(ReportVerbTest, APlanIsAPage) {
  const std::string plan = run_dir_ + "/plan.json";
  const Json figures = report(plan, {"-m", model_, "-C", cluster_, "-o", page_});
  EXPECT_EQ(figures.at("timelines").at(0).at("name"), "equal split");
  EXPECT_EQ(figures.at("timelines").at(1).at("name"), "plan");
  std::set<std::string> labels;
  double slowest = 0;
  for (const Json& each : figures.at("neighbours")) {
    labels.insert(each.at("plan"));
    EXPECT_GE(each.at("step_s"), slowest);
    slowest = each.at("step_s");
  }
  // A device passes on a twentieth of 60 samples.
  EXPECT_THAT(labels, ::testing::IsSupersetOf({"this plan", "equal split", "without a:2",
                                               "a:0 alone", "3 from a:0 to a:1"}));
  expect_page(page_, figures);
  EXPECT_EQ(refusal({"report", plan}),
            "2 " + plan +
                ": a plan is reported with its model (-m) and its cluster (-C) "
                "[cli.plan-of]");
}

TEST_F(ReportVerbTest, DirectoriesHalfWrittenOrOlderAreReported) {
  const std::string older = copied("older");
  for (const char* name : {"cluster.toml", "start.json", "predicted.txt"})
    fs::remove(older + "/" + name);
  Json figures = report(older, {"-o", page_});
  EXPECT_EQ(figures.at("state"), "finished");
  EXPECT_EQ(figures.at("command"), nullptr);
  EXPECT_EQ(figures.at("links"), Json::array());
  run::StatusFile::create(older, 0)->record().pid = 999999999;  // as its workers left it
  write("older/summary.json", R"({"steps": 1)");
  write("older/program.txt", "motley.pro");
  const std::string log = read_file(older + "/log.jsonl").value();
  write("older/log.jsonl", std::string_view(log).substr(0, log.size() - 20));
  figures = report(older, {"-o", page_});
  EXPECT_EQ(figures.at("state"), "ended");
  EXPECT_EQ(figures.at("steps"), 2);
  EXPECT_GE(figures.at("remarks").size(), 2U);
  write("older/job.json", "<b>");
  EXPECT_EQ(
      refusal({"report", older}),
      "2 " + older + ": is no run directory (" + older +
          "/job.json:1:1: syntax error while parsing value - invalid literal; last read: '<') "
          "[cli.not-a-run]");
}

TEST_F(ReportVerbTest, NamesWithMarkupAreText) {
  const std::string evil = copied("<img src=x onerror=alert(1)>");
  for (const char* name : {"program.txt", "predicted.txt", "trace/rank-0.txt", "plan.json",
                           "job.json", "cluster.toml", "summary.json"}) {
    std::string text = read_file(evil + "/" + name).value();
    for (const auto& [from, to] : {std::pair<std::string, std::string>("net.0", "<script>0"),
                                   {"\"a:0\"", "\"<u>:0\""},
                                   {"\"a:1\"", "\"<u>:1\""},
                                   {"\"a:2\"", "\"<u>:2\""},
                                   {"name = \"a\"", "name = \"<u>\""}})
      for (std::size_t at = text.find(from); at != std::string::npos;
           at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
    ASSERT_TRUE(write_file_atomic(evil + "/" + name, text));
  }
  ASSERT_EQ(call({"report", evil, "-o", page_}), kDone) << err_;
  const std::string page = read_file(page_).value();
  EXPECT_THAT(page, HasSubstr("&lt;u&gt;:0"));
  EXPECT_THAT(page, HasSubstr("&lt;img src=x"));
  EXPECT_THAT(page, Not(HasSubstr("<u>")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_EQ(page.find("<script"), page.rfind("<script"));
}

TEST_F(ReportVerbTest, ARunCorrectsTheProfile) {
  const Words profile = {"profile", "-m", model_, "-C", cluster_, "--global-batch", "60"};
  Words from_run = profile;
  from_run.insert(from_run.end(), {"--from-run", run_dir_});
  EXPECT_EQ(answer(from_run).at("entries"), 3);  // the pace of each emulated device
  from_run.back() = directory_.file("none");
  EXPECT_EQ(refusal(from_run),
            "2 " + directory_.file("none/plan.json") + ": no such file [file.missing]");
}

TEST_F(ReportVerbTest, RunsAreRememberedByLaterPlans) {
  for (int run = 0; run < 8; ++run)
    ASSERT_EQ(call({"run", "-m", model_, "-C", cluster_, "--global-batch", "60", "--batch-split",
                    "34,17,9", "--adapt", "none", "--data", data_, "--steps", "3", "--run-dir",
                    run_dir_, "--resume", "never"}),
              kDone)
        << err_;
  EXPECT_EQ(
      answer({"plan", "-m", model_, "-C", cluster_, "--global-batch", "60"}).at("interval_basis"),
      "9 earlier runs of this model on this cluster");
}

}  // namespace
}  // namespace motley::cli

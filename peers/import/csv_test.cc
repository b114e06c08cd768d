#include "peers/import/csv.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <fstream>

#include "motley/base/text.h"

namespace motley::peers {
namespace {

std::vector<std::string> row_of(const CsvTable& table, std::size_t row) {
  std::vector<std::string> fields;
  for (std::size_t i = 0; i < table.columns(); ++i) fields.push_back(table.text(row, i));
  return fields;
}

template <typename T>
std::string message_of(const Result<T>& result) {
  return result ? "no error" : result.error().message;
}

using Fields = std::vector<std::string>;

TEST(Csv, ReadsNamesAndRows) {
  const auto table = CsvTable::parse("n,time (ms)\n2,17.5\n4, 9 \n", "t.csv");
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->names(), (Fields{"n", "time (ms)"}));
  ASSERT_EQ(table->rows(), 2u);
  EXPECT_EQ(row_of(*table, 0), (Fields{"2", "17.5"}));
  EXPECT_EQ(row_of(*table, 1), (Fields{"4", "9"}));
  EXPECT_EQ(table->column("time (ms)"), 1u);
  EXPECT_EQ(table->number(0, 1), 17.5);
  EXPECT_EQ(table->integer(1, 0), 4);
}

TEST(Csv, TakesByteOrderMarkCarriageReturnsBlankLinesAndAMissingLineEnd) {
  const auto table = CsvTable::parse("\xEF\xBB\xBF# GPUs,b\r\n1,2\r\n\r\n3,4\r", "t.csv");
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->names(), (Fields{"# GPUs", "b"}));
  ASSERT_EQ(table->rows(), 2u);
  EXPECT_EQ(row_of(*table, 1), (Fields{"3", "4"}));
  EXPECT_EQ(table->line(0), 2u);
  EXPECT_EQ(table->line(1), 4u);  // line 3 is blank
}

TEST(Csv, TakesQuotedFields) {
  const auto table =
      CsvTable::parse("a,b\n\" x, y\" ,\"say \"\"no\"\"\"\n\"two\nlines\",\n7,8", "t.csv");
  ASSERT_TRUE(table) << table.error().message;
  ASSERT_EQ(table->rows(), 3u);
  EXPECT_EQ(row_of(*table, 0), (Fields{" x, y", "say \"no\""}));
  EXPECT_EQ(row_of(*table, 1), (Fields{"two\nlines", ""}));
  EXPECT_EQ(table->line(2), 5u);  // names, one line, two lines, then this
}

TEST(Csv, FindsNamesThatComeTwiceByTheirPlace) {
  const auto table = CsvTable::parse("size,time,bus,time,bus\n1,2,3,4,5\n", "t.csv");
  ASSERT_TRUE(table);
  EXPECT_EQ(table->column("time"), 1u);
  EXPECT_EQ(table->column("time", 1), 3u);
  EXPECT_EQ(message_of(table->column("time", 2)),
            "t.csv:1: no column number 3 'time', found: size, time, bus, time, bus");
  EXPECT_EQ(message_of(table->column("ms")),
            "t.csv:1: no column 'ms', found: size, time, bus, time, bus");
}

TEST(Csv, ReadsATableWithoutNames) {
  const auto table = CsvTable::parse("K80,,\n1,2,x\n", "t.csv", {.has_names = false});
  ASSERT_TRUE(table);
  EXPECT_EQ(table->rows(), 2u);
  EXPECT_EQ(row_of(*table, 0), (Fields{"K80", "", ""}));
  EXPECT_EQ(message_of(table->number(1, 2)), "t.csv:2: column 3: found 'x', wanted a number");
}

TEST(Csv, NamesTheLineAndTheColumnOfAFault) {
  const auto table = CsvTable::parse("n,ms\n1,0\n2,-1\n2.5,nan\n,99999999999999999999\n", "t.csv");
  ASSERT_TRUE(table);
  EXPECT_EQ(message_of(table->positive_number(0, 1)),
            "t.csv:2: column 'ms': found '0', wanted more than 0");
  EXPECT_EQ(message_of(table->positive_integer(1, 1)),
            "t.csv:3: column 'ms': found '-1', wanted more than 0");
  EXPECT_EQ(message_of(table->integer(2, 0)),
            "t.csv:4: column 'n': found '2.5', wanted an integer");
  EXPECT_EQ(message_of(table->number(2, 1)), "t.csv:4: column 'ms': found 'nan', wanted a number");
  EXPECT_EQ(message_of(table->number(3, 0)), "t.csv:5: column 'n': found '', wanted a number");
  EXPECT_EQ(message_of(table->integer(3, 1)),
            "t.csv:5: column 'ms': found '99999999999999999999', wanted an integer");
  EXPECT_EQ(table->fault(1, 0, "a prime").value().message,
            "t.csv:3: column 'n': found '2', wanted a prime");
}

TEST(Csv, RefusesWhatIsNoTable) {
  EXPECT_EQ(message_of(CsvTable::parse("", "t.csv")), "t.csv:1: empty, wanted a line of names");
  EXPECT_EQ(message_of(CsvTable::parse("\n\r\n", "t.csv")),
            "t.csv:1: empty, wanted a line of names");
  EXPECT_EQ(message_of(CsvTable::parse("a,b\n1,2\n3\n", "t.csv")),
            "t.csv:3: found 1 fields, wanted 2");
  EXPECT_EQ(message_of(CsvTable::parse("a,b\n1,2,3\n", "t.csv")),
            "t.csv:2: found 3 fields, wanted 2");
  EXPECT_EQ(message_of(CsvTable::parse("a\n\"b\nc\n", "t.csv")),
            "t.csv:2: a field opens with a quote that nothing closes");
  EXPECT_EQ(message_of(CsvTable::parse("a\n\"b\"c\n", "t.csv")),
            "t.csv:2: found 'c' after a closing quote, wanted a comma or the end of the line");
  EXPECT_EQ(message_of(CsvTable::read("no/such.csv")), "no/such.csv: no such file");
}

TEST(Csv, ReadsAFile) {
  const std::string path = ::testing::TempDir() + "motley_csv_test.csv";
  std::ofstream(path) << "a\n5\n";
  const auto table = CsvTable::read(path);
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->integer(0, 0), 5);
}

RC_GTEST_PROP(Csv, KeepsQuotedFields, ()) {
  const auto columns = *rc::gen::inRange<std::size_t>(1, 5);
  const auto rows = *rc::gen::container<std::vector<Fields>>(
      rc::gen::container<Fields>(columns, rc::gen::string<std::string>()));
  std::string text;
  for (const Fields& row : rows) {
    Fields quoted;
    for (const std::string& field : row) {
      std::string doubled;
      for (const char c : field) doubled += c == '"' ? std::string("\"\"") : std::string(1, c);
      quoted.push_back('"' + doubled + '"');
    }
    text += join(quoted, ",") + "\r\n";
  }
  const auto table = CsvTable::parse(text, "t.csv", {.has_names = false});
  RC_ASSERT(table.has_value());
  RC_ASSERT(table->rows() == rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) RC_ASSERT(row_of(*table, i) == rows[i]);
}

}  // namespace
}  // namespace motley::peers

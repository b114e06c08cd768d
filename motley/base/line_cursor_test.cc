#include "motley/base/line_cursor.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(LineCursor, TakesWhatComesNextAndLeavesTheRest) {
  LineCursor line("  free freed 12 \"a \\\"b\\\" \\n\" :");
  EXPECT_FALSE(line.take_word("fre"));  // not a whole word
  EXPECT_TRUE(line.take_word("free"));
  EXPECT_FALSE(line.take(':'));
  EXPECT_EQ(line.take_identifier(), "freed");
  std::int64_t value = 0;
  EXPECT_TRUE(line.expect_integer(value));
  EXPECT_EQ(value, 12);
  std::string text;
  EXPECT_TRUE(line.expect_quoted(text));
  EXPECT_EQ(text, "a \"b\" \n");
  EXPECT_EQ(line.peek(), ':');
  EXPECT_TRUE(line.expect(':'));
  EXPECT_TRUE(line.at_end());
  EXPECT_TRUE(line.expect_end());
  EXPECT_EQ(line.message(), "");
}

TEST(LineCursor, KeepsTheFirstFailure) {
  LineCursor line("a line that is longer than what is shown");
  EXPECT_FALSE(line.expect(':'));
  EXPECT_FALSE(line.fail("something else"));
  EXPECT_EQ(line.message(), "found 'a line that is longer th...', wanted ':'");
}

TEST(LineCursor, SaysWhatIsWrongWithATextInQuotes) {
  const auto message = [](std::string_view text) {
    LineCursor line(text);
    std::string value;
    EXPECT_FALSE(line.expect_quoted(value));
    return line.message();
  };
  EXPECT_EQ(message(""), "found the end of the line, wanted a text in quotes");
  EXPECT_EQ(message("\"ab"), "found '\"ab', wanted a text that ends with a quote");
  EXPECT_EQ(message("\"\\t\""),
            "found '\"\\t\"', wanted a text in quotes with the escapes \\\" \\\\ \\n");
  EXPECT_EQ(message("\"\\"),
            "found '\"\\', wanted a text in quotes with the escapes \\\" \\\\ \\n");
}

TEST(LineCursor, AnIntegerTooLargeIsNone) {
  LineCursor line("99999999999999999999");
  std::int64_t value = 7;
  EXPECT_FALSE(line.expect_integer(value));
  EXPECT_EQ(value, 7);
  EXPECT_EQ(line.message(), "found '99999999999999999999', wanted an integer");
}

TEST(ParseLines, HandsOverLinesAfterTheVersionWithTheirNumbers) {
  constexpr TextForm kForm{"toy.parse", "toy/1"};
  std::vector<std::pair<std::string, int>> seen;
  const auto parse = [&](std::string_view text) {
    return parse_lines(text, "toy.txt", kForm, [&](LineCursor& line, int number) {
      seen.emplace_back(line.take_identifier(), number);
      return line.expect_end();
    });
  };
  EXPECT_EQ(parse("toy/1\na\n\n  # not this\n  b\nc").value(), 6);
  EXPECT_EQ(seen, (std::vector<std::pair<std::string, int>>{{"a", 2}, {"b", 5}, {"c", 6}}));
  EXPECT_EQ(parse("toy/1").value(), 1);
  EXPECT_EQ(parse("").error().message, "toy.txt:1: found '', wanted 'toy/1'");
  EXPECT_EQ(parse("a\n").error().message, "toy.txt:1: found 'a', wanted 'toy/1'");
  EXPECT_EQ(parse("toy/1\na\nb b\n").error().message,
            "toy.txt:3: found 'b', wanted the end of the line");
}

}  // namespace
}  // namespace motley

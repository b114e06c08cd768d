#include "motley/graph/size_expr.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

namespace motley::graph {
namespace {

using ::testing::ElementsAre;

SizeExpr parse(std::string_view text) {
  auto expr = parse_size_expr(text);
  EXPECT_TRUE(expr) << text << ": " << (expr ? "" : expr.error().message);
  return expr.value_or(SizeExpr(-1));
}

std::int64_t at(std::string_view text, std::int64_t batch) {
  return parse(text).evaluate_integer({{"batch", batch}, {"seq", 3}});
}

TEST(SizeExpr, EvaluatesAsPython) {
  EXPECT_EQ(at("batch*4+1", 2), 9);
  EXPECT_EQ(at("1+2*batch", 5), 11);
  EXPECT_EQ(at("(batch+1)//2", 6), 3);
  EXPECT_EQ(at("10-batch-1", 2), 7);  // from the left
  EXPECT_EQ(at("10-(batch-1)", 2), 9);
  EXPECT_EQ(at("batch//2*2", 5), 4);
  EXPECT_EQ(at("-batch//2", 5), -3);  // floors
  EXPECT_EQ(at("-batch%3", 5), 1);    // takes the sign of the divisor
  EXPECT_EQ(at("batch%-3", 5), -1);
  EXPECT_EQ(at("max(batch, seq)*min(batch, seq)", 5), 15);
  EXPECT_EQ(at("batch//(seq-3)", 5), 0);  // division by zero
  EXPECT_EQ(at("batch%(seq-3)", 5), 0);
}

TEST(SizeExpr, DivisionGivesAFloat) {
  const Sizes sizes = {{"batch", 6}};
  EXPECT_EQ(parse("batch/4").evaluate(sizes), Number(1.5));
  EXPECT_EQ(parse("batch/2").evaluate(sizes), Number(3.0));
  EXPECT_EQ(parse("1/batch*6").evaluate(sizes), Number(1.0 / 6 * 6));
  EXPECT_EQ(parse("(batch/4)//1").evaluate(sizes), Number(1.0));
  EXPECT_EQ(parse("-(batch/4)%1").evaluate(sizes), Number(0.5));
  EXPECT_EQ(parse("max(batch, batch/4)").evaluate(sizes), Number(std::int64_t{6}));
  EXPECT_EQ(parse("min(batch, batch/4)").evaluate(sizes), Number(1.5));
  EXPECT_FALSE(parse("batch/2").is_integer());
  EXPECT_TRUE(parse("batch//2").is_integer());
}

TEST(SizeExpr, PrintsWithAsFewParenthesesAsItMay) {
  EXPECT_EQ(parse(" batch * 4 + 1 ").text(), "batch*4+1");
  EXPECT_EQ(parse("(batch*4)+1").text(), "batch*4+1");
  EXPECT_EQ(parse("((batch+1))*4").text(), "(batch+1)*4");
  EXPECT_EQ(parse("batch-(seq-1)").text(), "batch-(seq-1)");
  EXPECT_EQ(parse("batch-(seq*2)").text(), "batch-seq*2");
  EXPECT_EQ(parse("batch//(seq*2)").text(), "batch//(seq*2)");
  EXPECT_EQ(parse("max(batch,(seq+1))").text(), "max(batch, seq+1)");
  EXPECT_EQ(parse("batch+-3").text(), "batch-3");
  EXPECT_EQ(parse("batch--seq").text(), "batch+seq");
  EXPECT_EQ(parse("batch*-3").text(), "batch*-3");
  EXPECT_EQ(parse("--batch").text(), "batch");
  EXPECT_EQ(parse("-(batch+1)").text(), "-(batch+1)");
}

TEST(SizeExpr, FoldsConstants) {
  EXPECT_EQ(parse("2*(3+4)//5-1"), SizeExpr(1));
  EXPECT_EQ(parse("batch*(2*3)").text(), "batch*6");
  EXPECT_EQ(parse("-(3)").text(), "-3");
  EXPECT_TRUE(parse("2*3").is_constant());
  EXPECT_EQ(parse("1/2").text(), "1/2");
  EXPECT_TRUE(parse("1/2").is_constant());
  EXPECT_FALSE(parse("batch").is_constant());
}

TEST(SizeExpr, SaturatesInsteadOfOverflowing) {
  EXPECT_EQ(at("batch*batch", 1LL << 40), INT64_MAX);
  EXPECT_EQ(at("batch*-batch", 1LL << 40), INT64_MIN);
  EXPECT_EQ(at("9223372036854775807+batch", 1), INT64_MAX);
  EXPECT_EQ(at("-9223372036854775808-batch", 1), INT64_MIN);
  EXPECT_EQ(at("-9223372036854775808//-batch", 1), INT64_MAX);
}

TEST(SizeExpr, KnowsItsSymbols) {
  EXPECT_THAT(parse("seq+batch*seq").symbols(), ElementsAre("seq", "batch"));
  EXPECT_TRUE(parse("seq+batch").depends_on("batch"));
  EXPECT_FALSE(parse("seq+1").depends_on("batch"));
  EXPECT_FALSE(SizeExpr(3).depends_on("batch"));
  EXPECT_EQ(SizeExpr::symbol("batch"), parse("batch"));
  EXPECT_NE(SizeExpr(3), parse("batch"));
  EXPECT_NE(SizeExpr(3), SizeExpr(4));
}

std::string message_of(std::string_view text) {
  const auto expr = parse_size_expr(text);
  return expr ? "parsed as " + expr->text() : expr.error().message;
}

TEST(SizeExpr, SaysWhatIsWrong) {
  EXPECT_EQ(message_of(""), "column 1: found the end, wanted a number, a name or '('");
  EXPECT_EQ(message_of("batch**2"), "column 7: found '*', wanted a number, a name or '('");
  EXPECT_EQ(message_of("batch 2"), "column 7: found '2', wanted an operator or the end");
  EXPECT_EQ(message_of("(batch"), "column 7: found the end, wanted ')'");
  EXPECT_EQ(message_of("max(batch)"), "column 10: found ')', wanted ','");
  EXPECT_EQ(message_of("9223372036854775808"), "column 1: found '9', wanted an integer below 2^63");
  EXPECT_EQ(message_of("2.5"), "column 2: found '.', wanted an operator or the end");
  const std::string deep = std::string(65, '(') + "1" + std::string(65, ')');
  EXPECT_EQ(message_of(deep), "column 65: found '(', wanted at most 64 levels");
  std::string longer = "batch";
  for (int i = 0; i < 600; ++i) longer += "*batch";
  EXPECT_THAT(message_of(longer), ::testing::EndsWith("wanted at most 1000 terms"));
}

/// Returns a random expression's text, fully parenthesised, at most `depth` operators deep.
rc::Gen<std::string> any_text(int depth) {
  const auto leaf = rc::gen::oneOf(
      rc::gen::element<std::string>("batch", "seq"),
      rc::gen::map(rc::gen::inRange(-20, 20), [](int i) { return std::to_string(i); }));
  if (depth == 0) return leaf;
  const auto child = rc::gen::lazy([depth] { return any_text(depth - 1); });
  const auto op = rc::gen::element<std::string>("+", "-", "*", "//", "/", "%");
  const auto binary =
      rc::gen::apply([](const std::string& a, const std::string& o,
                        const std::string& b) { return "(" + a + ")" + o + "(" + b + ")"; },
                     child, op, child);
  const auto call = rc::gen::apply([](const std::string& a, const std::string& f,
                                      const std::string& b) { return f + "(" + a + "," + b + ")"; },
                                   child, rc::gen::element<std::string>("max", "min"), child);
  const auto negative = rc::gen::map(child, [](const std::string& a) { return "-(" + a + ")"; });
  return rc::gen::oneOf(leaf, binary, binary, call, negative);
}

bool same(const Number& a, const Number& b) {
  const auto* x = std::get_if<double>(&a);
  const auto* y = std::get_if<double>(&b);
  return (x != nullptr && y != nullptr && *x != *x && *y != *y) || a == b;
}

RC_GTEST_PROP(SizeExpr, PrintedTextIsStableAndMeansTheSame, ()) {
  const SizeExpr expr = parse(*any_text(4));
  const SizeExpr again = parse(expr.text());
  RC_ASSERT(again.text() == expr.text());
  RC_ASSERT(again == expr);
  const Sizes sizes = {{"batch", *rc::gen::inRange<std::int64_t>(1, 50)}, {"seq", 7}};
  RC_ASSERT(same(again.evaluate(sizes), expr.evaluate(sizes)));
}

/// Replaces every name by a number: folding must equal evaluation.
RC_GTEST_PROP(SizeExpr, FoldingEqualsEvaluating, ()) {
  std::string text = *any_text(4);
  const SizeExpr expr = parse(text);
  for (std::size_t i = 0; (i = text.find("batch")) != std::string::npos;) text.replace(i, 5, "5");
  for (std::size_t i = 0; (i = text.find("seq")) != std::string::npos;) text.replace(i, 3, "7");
  RC_ASSERT(same(parse(text).evaluate({}), expr.evaluate({{"batch", 5}, {"seq", 7}})));
}

}  // namespace
}  // namespace motley::graph

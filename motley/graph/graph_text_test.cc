#include "motley/graph/graph_text.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "motley/base/file.h"
#include "motley/testing/places.h"

namespace motley::graph {
namespace {

class GoldenGraph : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenGraph, PrintsAsItWasRead) {
  const std::string path = testing::source_path("tests/golden/graph/") + GetParam() + ".txt";
  const auto text = read_file(path);
  ASSERT_TRUE(text) << text.error().message;
  const auto graph = parse_graph(*text, path);
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(print_graph(*graph), *text);
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenGraph,
                         ::testing::Values("mlp", "mlp_evaluation", "cnn", "gpt_dropout",
                                           "regression", "every_form"),
                         [](const auto& info) { return info.param; });

/// A small graph that verifies; tests replace one line of it.
constexpr std::string_view kSmall = R"(motley.graph/1
# one linear layer
name "small"

size batch 1 64
input %0: f32[batch, 4] "x"
param %1: f32[4, 2] "w"
buffer %2: f32[2] "mean"
tangent %3: f32[]
op %4: f32[batch, 2] = aten::mm(%0, %1) fwd "fc" seq 1
op %5: f32[] = aten::sum(%4, none) fwd ""
op %6: f32[4, 2] = aten::mm(%0, %4) bwd "fc" seq 1
op %7: f32[2] = aten::add.Tensor(%2, 1.0, 1) fwd "fc"
output loss %5
output gradient %6 of "w"
output update %7 of "mean"
)";

TEST(ParseGraph, FillsTheTypes) {
  const auto parsed = parse_graph(kSmall, "m");
  ASSERT_TRUE(parsed) << parsed.error().message;
  const Graph& graph = *parsed;
  EXPECT_EQ(graph.name, "small");
  EXPECT_EQ(graph.sizes, (std::vector<NamedSize>{{"batch", 1, 64}}));
  EXPECT_EQ(values_with_role(graph, ValueRole::kActivation),
            (std::vector<ValueId>{ValueId(4), ValueId(5), ValueId(6), ValueId(7)}));
  const Op& op = graph.ops[3];
  EXPECT_EQ(op.name, "aten::add");
  EXPECT_EQ(op.full_name(), "aten::add.Tensor");
  EXPECT_EQ(op.arguments, (SymbolicArguments{{ValueId(2)}, {1.0}, {std::int64_t{1}}}));
  EXPECT_EQ(op.direction, Direction::kForward);
  EXPECT_EQ(graph.ops[2].direction, Direction::kBackward);
  EXPECT_EQ(graph.ops[2].sequence, 1);
  EXPECT_EQ(graph.value(ValueId(4)).producer, OpId(0));
  EXPECT_EQ(graph.outputs[1], (Output{OutputKind::kGradient, ValueId(6), ValueId(1), ""}));
  // 8 samples of 2 floats.
  EXPECT_EQ(value_bytes(graph.value(ValueId(4)), {{"batch", 8}}), 64);
}

std::string replaced(std::string_view from, std::string_view to) {
  std::string text(kSmall);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string message_of(std::string_view from, std::string_view to) {
  const auto graph = parse_graph(replaced(from, to), "m");
  return graph ? "parsed" : graph.error().message;
}

TEST(ParseGraph, NamesLineFoundAndWanted) {
  EXPECT_EQ(message_of("motley.graph/1", "motley.graph/2"),
            "m:1: found 'motley.graph/2', wanted 'motley.graph/1'");
  EXPECT_EQ(message_of("name \"small\"", ""), "m:5: found 'size', wanted 'name'");
  EXPECT_EQ(message_of("\"small\"", "small"),
            "m:3: found 'small', wanted the quoted name of the graph");
  EXPECT_EQ(message_of("size batch 1 64", "size batch 1"),
            "m:5: found the end of the line, wanted the largest size");
  EXPECT_EQ(
      message_of("input %0", "inptu %0"),
      "m:6: found 'inptu', wanted size, input, param, buffer, constant, tangent, op or output");
  EXPECT_EQ(message_of("param %1", "param %2"), "m:7: found %2, wanted %1, the next id");
  EXPECT_EQ(message_of("f32[4, 2] \"w\"", "f31[4, 2] \"w\""),
            "m:7: found 'f31', wanted a dtype: f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool "
            "c64 c128 none");
  EXPECT_EQ(message_of("f32[4, 2] \"w\"", "f32[4, 2 \"w\""),
            "m:7: size expression '2 \"w\"': column 3: found '\"', wanted an operator or the end");
  EXPECT_EQ(message_of("\"w\"\n", "\"w\" tide \"v\"\n"),
            "m:7: found 'tide', wanted the end of the line");
  EXPECT_EQ(message_of("\"w\"\n", "\"w\n"),
            "m:7: found the end of the line, wanted a closing '\"'");
  EXPECT_EQ(message_of("\"w\"\n", "\"\\w\"\n"), R"(m:7: found '\', wanted \", \\ or \n)");
  EXPECT_EQ(message_of("tangent %3: f32[]\n", "tangent %3: f32[]\nsize seq 1 2\n"),
            "m:10: found 'size', wanted the sections in order: name, size, input param buffer "
            "constant tangent, op, output");
}

TEST(ParseGraph, NamesWhatIsWrongWithAnOperator) {
  EXPECT_EQ(message_of("aten::mm(%0, %1)", "mm(%0, %1)"),
            "m:10: found '(', wanted an operator such as aten::mm");
  EXPECT_EQ(message_of("aten::mm(%0, %1)", "aten::mm.(%0, %1)"),
            "m:10: found '(', wanted the name of an overload");
  EXPECT_EQ(message_of("aten::mm(%0, %1)", "aten::mm(%0, %4)"),
            "m:10: found '%4', wanted a value defined above");
  EXPECT_EQ(message_of("aten::mm(%0, %1)", "aten::mm(%0, %)"),
            "m:10: found '%', wanted a value defined above");
  EXPECT_EQ(message_of("aten::mm(%0, %1)", "aten::mm(%0 %1)"), "m:10: found '%1', wanted ')'");
  EXPECT_EQ(message_of("aten::mm(%0, %1)", "aten::mm(%0, [%1)"), "m:10: found ')', wanted ']'");
  EXPECT_EQ(message_of("aten::mm(%0, %1)", "aten::mm(%0, 1x)"),
            "m:10: found '1x', wanted a 64-bit integer or a float");
  EXPECT_EQ(message_of("aten::mm(%0, %1)", "aten::mm(%0, 9223372036854775808)"),
            "m:10: found '9223372036854775808', wanted a 64-bit integer or a float");
  EXPECT_EQ(
      message_of("aten::mm(%0, %1)", "aten::mm(%0, size(batch**2))"),
      "m:10: size expression 'batch**2': column 7: found '*', wanted a number, a name or '('");
  EXPECT_EQ(message_of("aten::mm(%0, %1)", "aten::mm(%0, device(cuda))"),
            "m:10: found 'cuda', wanted a device of docs/formats/graph.md");
  EXPECT_EQ(message_of("aten::mm(%0, %1)", "aten::mm(%0, None)"),
            "m:10: found 'None', wanted an argument: %ID, none, true, false, a number, a string, a "
            "list, size, number, complex, dtype, layout, device or memory_format");
  EXPECT_EQ(message_of("aten::mm(%0, %1)", "aten::mm(%0, complex(1, 2.0))"),
            "m:10: found '1', wanted a float such as 2.0");
  EXPECT_EQ(message_of("aten::mm(%0, %1)", "aten::mm(%0, complex(1.0))"),
            "m:10: found ')', wanted ','");
  EXPECT_EQ(message_of("fwd \"fc\" seq 1", "forward \"fc\" seq 1"),
            "m:10: found 'forward', wanted fwd or bwd");
  EXPECT_EQ(message_of("fwd \"fc\" seq 1", "fwd fc seq 1"),
            "m:10: found 'fc', wanted the quoted module path");
  EXPECT_EQ(message_of("fwd \"fc\" seq 1", "fwd \"fc\" seq"),
            "m:10: found the end of the line, wanted a sequence number");
  const std::string deep = "aten::mm(%0, " + std::string(17, '[') + std::string(17, ']') + ")";
  EXPECT_EQ(message_of("aten::mm(%0, %1)", deep),
            "m:10: found '[', wanted at most 16 levels of lists");
}

TEST(ParseGraph, NamesWhatIsWrongWithAnOutput) {
  EXPECT_EQ(message_of("output loss %5", "output los %5"),
            "m:14: found 'los', wanted loss, extra, metric, gradient or update");
  EXPECT_EQ(message_of("output loss %5", "output loss %8"),
            "m:14: found '%8', wanted a value defined above");
  EXPECT_EQ(message_of("of \"w\"", "\"w\""), "m:15: found '\"', wanted 'of'");
  EXPECT_EQ(message_of("of \"w\"", "of \"W\""),
            "m:15: found \"W\", wanted the name of a parameter");
  EXPECT_EQ(message_of("of \"mean\"", "of \"maen\""),
            "m:16: found \"maen\", wanted the name of a buffer");
  EXPECT_EQ(message_of("output loss %5", "output extra %5 logits"),
            "m:14: found 'logits', wanted the quoted name of the output");
  EXPECT_EQ(message_of("output loss %5", "output loss %5 \"logits\""),
            "m:14: found '\"', wanted the end of the line");
}

TEST(ParseGraph, RefusesTextThatEndsEarly) {
  EXPECT_EQ(parse_graph("", "m").error().message,
            "m:1: found the end of the text, wanted 'motley.graph/1'");
  EXPECT_EQ(parse_graph("motley.graph/1\n", "m").error().message,
            "m:2: found the end of the text, wanted 'name'");
  EXPECT_EQ(parse_graph("motley.graph/1\nname \"\xFF\"\n", "m").error().message,
            "m: found bytes that are not UTF-8, wanted text");
}

TEST(VerifyGraph, NamesEachViolation) {
  EXPECT_EQ(message_of("size batch 1 64", "size batch 0 64"),
            "m: size 'batch': found 0 to 64, wanted 1 <= smallest <= largest");
  EXPECT_EQ(message_of("size batch 1 64", "size batch 1 64\nsize batch 1 2"),
            "m: size 'batch' is declared twice");
  EXPECT_EQ(message_of("size batch 1 64", "size seq 1 64"), "m: size 'batch' is not declared");
  EXPECT_EQ(message_of("f32[batch, 4] \"x\"", "f32[4, batch] \"x\""),
            "m: input %0 \"x\": found dimension 0 4, wanted batch");
  EXPECT_EQ(message_of("f32[batch, 4] \"x\"", "f32[] \"x\""),
            "m: input %0 \"x\": found dimension 0 missing, wanted batch");
  EXPECT_EQ(message_of("f32[batch, 2] =", "f32[seq, 2] ="),
            "m: value %4: size 'seq' is not declared");
  EXPECT_EQ(message_of("f32[batch, 2] =", "f32[batch/2, 2] ="),
            "m: value %4: dimension batch/2 is not an integer");
  EXPECT_EQ(message_of("f32[batch, 2] =", "f32[batch-2, 2] ="),
            "m: value %4: dimension batch-2 is negative at the smallest size");
  EXPECT_EQ(message_of("f32[batch, 2] =", "f32[63-batch, 2] ="),
            "m: value %4: dimension 63-batch is negative at the largest size");
  EXPECT_EQ(message_of("f32[batch, 2] =", "f32[1152921504606846976] ="),
            "m: values of more than 2^60 bytes at the largest sizes");
  EXPECT_EQ(message_of("tangent %3: f32[]", "tangent %3: f32[1]"),
            "m: tangent %3: wanted a scalar");
  EXPECT_EQ(message_of("f32[2] \"mean\"", "none \"mean\""),
            "m: buffer %2 \"mean\": only a result may have type none, without a shape\n"
            "m: op 3 (aten::add.Tensor): uses %2, which is undefined\n"
            "m: update %7: dtype or shape differ from buffer %2 \"mean\"");
  EXPECT_EQ(message_of("f32[2] \"mean\"", "c64[2] \"mean\""),
            "m: buffer %2 \"mean\": only a result may be complex\n"
            "m: update %7: dtype or shape differ from buffer %2 \"mean\"");
  EXPECT_EQ(message_of("\"mean\"", "\"w\""), "m:16: found \"mean\", wanted the name of a buffer");
  EXPECT_EQ(message_of("\"w\"\n", "\"w\" tied \"mean\"\n"),
            "m: buffer %2 \"mean\": the name is taken");
  EXPECT_EQ(message_of("\"w\"\n", "\"w\" tied \"w\"\n"),
            "m: parameter %1 \"w\": the tied name \"w\" is taken");
  EXPECT_EQ(message_of("\"w\"\n", "\"w\" frozen\n"),
            "m: parameter %1 \"w\" is frozen but has a gradient");
  EXPECT_EQ(message_of("aten::mm(%0, %1)", "aten::mm(%0, size(batch/2), number(seq))"),
            "m: op 0 (aten::mm): size(batch/2) is not an integer\n"
            "m: op 0 (aten::mm): size 'seq' is not declared");
  EXPECT_EQ(message_of("output loss %5", "output extra %5"), "m: found 0 loss outputs, wanted one");
  EXPECT_EQ(message_of("output loss %5", "output loss %5\noutput loss %5"),
            "m: found 2 loss outputs, wanted one");
  EXPECT_EQ(message_of("output loss %5", "output loss %4"),
            "m: loss %4: wanted a floating-point scalar");
  EXPECT_EQ(message_of("%6 of \"w\"", "%4 of \"w\""),
            "m: gradient %4: dtype or shape differ from parameter %1 \"w\"");
  EXPECT_EQ(message_of("%6 of \"w\"", "%6 of \"w\"\noutput gradient %6 of \"w\""),
            "m: parameter %1 \"w\" has two gradients");
  EXPECT_EQ(message_of("output loss %5",
                       "output loss %5\noutput extra %4 \"y\"\noutput extra %4\n"
                       "output extra %4\noutput extra %5 \"y\""),
            "m: two outputs have the name \"y\"");
}

/// Tests faults that the text cannot express.
TEST(VerifyGraph, ChecksGraphsThatWereBuiltInCode) {
  const Graph good = *parse_graph(kSmall, "m");
  Graph graph = good;
  graph.ops[0].outputs[0] = ValueId(5);
  EXPECT_EQ(verify_graph(graph, "m").error().message,
            "m: op 0 (aten::mm): found result %5, wanted %4, produced by this operator only");
  graph = good;
  graph.ops[0].arguments[1].value = ValueId(6);
  EXPECT_EQ(verify_graph(graph, "m").error().message,
            "m: op 0 (aten::mm): %6 is used before it is defined");
  graph = good;
  graph.values[0].producer = OpId(0);
  EXPECT_EQ(verify_graph(graph, "m").error().message,
            "m: input %0 \"x\" has an operator that produces it");
  graph = good;
  graph.outputs[1].of = ValueId(2);
  EXPECT_EQ(verify_graph(graph, "m").error().message, "m: gradient %6: is of no parameter");
  graph = good;
  graph.outputs[0].value = ValueId(99);
  EXPECT_EQ(verify_graph(graph, "m").error().message,
            "m: output %99 is not a defined value\nm: found 0 loss outputs, wanted one");
  graph = good;
  graph.values.emplace_back();
  EXPECT_EQ(verify_graph(graph, "m").error().message,
            "m: %8 is neither a leaf before the operators nor a result of one");
}

TEST(VerifyGraph, StopsCountingAfterTwentyViolations) {
  Graph graph = *parse_graph(kSmall, "m");
  for (int i = 0; i < 30; ++i) graph.outputs.push_back({OutputKind::kExtra, ValueId(99), {}, {}});
  EXPECT_THAT(verify_graph(graph, "m").error().message, ::testing::EndsWith("\nm: and more"));
}

TEST(SymbolicArgument, EqualityTreatsNanAsItself) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ((SymbolicArgument{SymbolicArguments{{nan}}}),
            (SymbolicArgument{SymbolicArguments{{nan}}}));
  EXPECT_NE(SymbolicArgument{1.0}, SymbolicArgument{std::int64_t{1}});
  EXPECT_EQ(print_argument(SymbolicArgument{SymbolicArguments{{nan}, {NoneArgument{}}}}),
            "[nan, none]");
}

/// Makes random graphs that verify: leaves, then operators over existing values.
class RandomGraph {
 public:
  Graph make() {
    graph_.name = text();
    graph_.sizes = {{"batch", 1, 1 + number(100)}};
    leaf(ValueRole::kInput, {SizeExpr::symbol("batch"), 3});
    const int leaves = number(5);
    for (int i = 0; i < leaves; ++i) {
      const auto role = static_cast<ValueRole>(number(4));
      leaf(role, role == ValueRole::kInput ? shape() : std::vector<SizeExpr>{number(9), 2});
    }
    const int ops = 1 + number(8);
    for (int i = 0; i < ops; ++i) op();
    graph_.outputs.push_back({OutputKind::kLoss, result({}, DType::kF64), {}, {}});
    for (std::size_t i = 0; i < first_result_; ++i) output(i);
    return graph_;
  }

 private:
  static int number(int below) { return *rc::gen::inRange(0, below); }
  static std::string text() {
    return *rc::gen::container<std::string>(rc::gen::element('a', '.', '"', '\\', '\n', ' ', '#'));
  }
  std::vector<SizeExpr> shape() {
    const char* dimensions[] = {"batch*4", "(batch+1)//2", "max(batch, 7)", "batch%3", "5"};
    std::vector<SizeExpr> shape = {SizeExpr::symbol("batch")};
    for (int i = number(3); i > 0; --i) shape.push_back(*parse_size_expr(dimensions[number(5)]));
    return shape;
  }
  void leaf(ValueRole role, std::vector<SizeExpr> shape) {
    Value value;
    value.role = role;
    value.dtype = static_cast<DType>(number(10));
    value.shape = std::move(shape);
    value.name = fmt::format("{}{}", text(), graph_.values.size());
    value.frozen = role == ValueRole::kParameter && number(3) == 0;
    if (role == ValueRole::kParameter && number(3) == 0) value.tied = {value.name + "t"};
    graph_.values.push_back(value);
    first_result_ = graph_.values.size();
  }
  ValueId result(std::vector<SizeExpr> shape, DType dtype) {
    Op op;
    op.name = "aten::made";
    op.arguments = arguments(2);
    add(op, std::move(shape), dtype);
    graph_.ops.push_back(op);
    return op.outputs[0];
  }
  void add(Op& op, std::vector<SizeExpr> shape, DType dtype) {
    Value value;
    value.dtype = dtype;
    if (dtype != DType::kNone) value.shape = std::move(shape);
    value.producer = OpId(static_cast<std::int64_t>(graph_.ops.size()));
    op.outputs.emplace_back(static_cast<std::int64_t>(graph_.values.size()));
    graph_.values.push_back(value);
  }
  void op() {
    Op op;
    op.name = "aten::any";
    if (number(2) == 0) op.overload = "Tensor_out";
    op.arguments = arguments(3);
    op.direction = static_cast<Direction>(number(2));
    op.module = text();
    op.returns_list = number(4) == 0;
    if (number(2) == 0) op.sequence = number(1000) - 500;
    for (int i = number(3); i >= 0; --i) add(op, shape(), static_cast<DType>(number(13)));
    graph_.ops.push_back(op);
  }
  SymbolicArguments arguments(int depth) {
    SymbolicArguments list;
    for (int i = number(5); i > 0; --i) list.push_back(argument(depth));
    return list;
  }
  SymbolicArgument argument(int depth) {
    switch (number(depth > 0 ? 11 : 10)) {
      case 0:
        return {NoneArgument{}};
      case 1:
        return {ValueId(number(static_cast<int>(first_result_)))};
      case 2:
        return {number(2) == 0};
      case 3:
        return {*rc::gen::arbitrary<std::int64_t>()};
      case 4:
        return {*rc::gen::element(0.1, -2.0, 1e300, 1e-7, std::nan(""), HUGE_VAL, -HUGE_VAL)};
      case 5:
        return {text()};
      case 6:
        return {SizeArgument{*parse_size_expr("batch*4-1")}};
      case 7:
        return {SymbolicNumber{*parse_size_expr("1/batch")}};
      case 8:
        return {KeywordArgument{"memory_format", "preserve"}};
      case 9:
        return {ComplexArgument{*rc::gen::element(-0.5, std::nan("")), HUGE_VAL}};
      default:
        return {arguments(depth - 1)};
    }
  }
  void output(std::size_t leaf) {
    const Value value = graph_.values[leaf];
    const ValueId id(static_cast<std::int64_t>(leaf));
    if (value.role == ValueRole::kParameter && !value.frozen) {
      graph_.outputs.push_back({OutputKind::kGradient, result(value.shape, value.dtype), id, {}});
    } else if (value.role == ValueRole::kBuffer) {
      graph_.outputs.push_back({OutputKind::kUpdate, result(value.shape, value.dtype), id, {}});
    } else {
      std::string name = number(2) == 0 ? "" : fmt::format("{}{}", text(), leaf);
      graph_.outputs.push_back({OutputKind::kExtra, id, {}, std::move(name)});
    }
  }

  Graph graph_;
  std::size_t first_result_ = 0;
};

RC_GTEST_PROP(GraphText, ReadsBackWhatItPrints, ()) {
  const Graph graph = RandomGraph().make();
  const std::string text = print_graph(graph);
  const auto back = parse_graph(text, "m");
  if (!back) RC_FAIL(back.error().message + "\n" + text);
  RC_ASSERT(*back == graph);
  RC_ASSERT(print_graph(*back) == text);
}

/// Damaged text gives an error or a graph that prints and parses again.
RC_GTEST_PROP(GraphText, SurvivesDamage, ()) {
  std::string text(kSmall);
  for (int i = *rc::gen::inRange(1, 4); i > 0; --i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
    text.replace(
        at, *rc::gen::inRange<std::size_t>(0, 3),
        *rc::gen::container<std::string>(rc::gen::element('%', '1', '"', '[', ')', 'f', ' ')));
  }
  const auto graph = parse_graph(text, "m");
  if (!graph) {
    RC_ASSERT(graph.error().message.starts_with("m:"));
    return;
  }
  const auto again = parse_graph(print_graph(*graph), "m");
  RC_ASSERT(again.has_value());
  RC_ASSERT(*again == *graph);
}

}  // namespace
}  // namespace motley::graph

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "motley/base/text.h"
#include "motley/graph/graph_text.h"
#include "motley/graph/line_lexer.h"

namespace motley::graph {
namespace {

constexpr int kMaxListDepth = 16;
constexpr std::string_view kVersion = "motley.graph/1";
constexpr std::pair<std::string_view, OutputKind> kOutputKinds[] = {
    {"loss", OutputKind::kLoss},
    {"extra", OutputKind::kExtra},
    {"metric", OutputKind::kMetric},
    {"gradient", OutputKind::kGradient},
    {"update", OutputKind::kUpdate}};

/// Returns whether `kind(word)` is a keyword argument of the format.
bool is_keyword(std::string_view kind, std::string_view word) {
  if (kind == "dtype") return word != "none" && find_dtype(word).has_value();
  if (kind == "layout") return word == "strided";
  if (kind == "device") return word == "local";
  return word == "contiguous" || word == "channels_last" || word == "channels_last_3d" ||
         word == "preserve";
}

/// Returns a float, but none for an integer too large for 64 bits.
std::optional<double> find_written_float(std::string_view text) {
  const bool written_as_float = text.find_first_of(".en") != std::string_view::npos;
  return written_as_float ? find_float(text) : std::nullopt;
}

/// Parses in one pass over the lines.
class GraphParser {
 public:
  GraphParser(std::string_view text, const std::string& name) : in_(text, name) {}

  Result<Graph> parse() {
    while (in_.next_line()) MOTLEY_RETURN_IF_ERROR(parse_line());
    if (section_ < kSizes)
      return in_.fail("the end of the text",
                      section_ == kStart ? fmt::format("'{}'", kVersion) : "'name'");
    return std::move(graph_);
  }

 private:
  /// Sections in their required order; an item moves to its section, never back.
  enum Section { kStart, kHeader, kSizes, kLeaves, kOps, kOutputs };

  Result<void> enter(Section section, std::string_view item) {
    if (section < section_) {
      return in_.fail(
          fmt::format("'{}'", item),
          "the sections in order: name, size, input param buffer constant tangent, op, output");
    }
    section_ = section;
    return {};
  }

  Result<void> parse_line() {
    if (section_ == kStart) {
      if (in_.rest() != kVersion) return in_.fail(fmt::format("'{}'", kVersion));
      section_ = kHeader;
      return {};
    }
    const std::string_view before = in_.rest();
    const std::string_view item = in_.word();
    if (section_ == kHeader) {
      if (item != "name") return in_.fail_at(before, "'name'");
      section_ = kSizes;
      MOTLEY_ASSIGN(graph_.name, in_.quoted("the quoted name of the graph"));
      return in_.want_end();
    }
    MOTLEY_RETURN_IF_ERROR(parse_item(item, before));
    return in_.want_end();
  }

  Result<void> parse_item(std::string_view item, std::string_view before) {
    if (item == "op") return parse_op();
    if (item == "input") return parse_leaf(ValueRole::kInput, item);
    if (item == "param") return parse_leaf(ValueRole::kParameter, item);
    if (item == "buffer") return parse_leaf(ValueRole::kBuffer, item);
    if (item == "constant") return parse_leaf(ValueRole::kConstant, item);
    if (item == "tangent") return parse_leaf(ValueRole::kTangent, item);
    if (item == "output") return parse_output();
    if (item == "size") return parse_size();
    return in_.fail_at(before, "size, input, param, buffer, constant, tangent, op or output");
  }

  Result<void> parse_size() {
    MOTLEY_RETURN_IF_ERROR(enter(kSizes, "size"));
    NamedSize size;
    size.name = in_.word();
    if (size.name.empty()) return in_.fail("the name of a size");
    MOTLEY_ASSIGN(size.min, in_.integer("the smallest size"));
    MOTLEY_ASSIGN(size.max, in_.integer("the largest size"));
    graph_.sizes.push_back(std::move(size));
    return {};
  }

  /// Parses "%N:" where N is the next id.
  Result<void> define() {
    MOTLEY_RETURN_IF_ERROR(in_.want('%'));
    const std::string wanted = fmt::format("%{}, the next id", graph_.values.size());
    MOTLEY_ASSIGN(const std::int64_t id, in_.integer(wanted));
    if (id != static_cast<std::int64_t>(graph_.values.size()))
      return in_.fail(fmt::format("%{}", id), wanted);
    return in_.want(':');
  }

  Result<void> parse_type(Value& value) {
    const std::string_view before = in_.rest();
    const auto dtype = find_dtype(in_.word());
    if (!dtype)
      return in_.fail_at(before, "a dtype: f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool c64 c128 none");
    value.dtype = *dtype;
    if (value.dtype == DType::kNone) return {};
    MOTLEY_RETURN_IF_ERROR(in_.want('['));
    if (in_.eat(']')) return {};
    do {
      MOTLEY_ASSIGN(SizeExpr size, in_.expression());
      value.shape.push_back(std::move(size));
    } while (in_.eat(','));
    return in_.want(']');
  }

  Result<void> parse_leaf(ValueRole role, std::string_view item) {
    MOTLEY_RETURN_IF_ERROR(enter(kLeaves, item));
    Value value;
    value.role = role;
    MOTLEY_RETURN_IF_ERROR(define());
    MOTLEY_RETURN_IF_ERROR(parse_type(value));
    if (role != ValueRole::kTangent) {
      MOTLEY_ASSIGN(value.name, in_.quoted("a quoted name"));
    }
    if (role == ValueRole::kParameter) {
      value.frozen = in_.eat_word("frozen");
      while (in_.eat_word("tied")) {
        MOTLEY_ASSIGN(std::string tied, in_.quoted("a quoted name"));
        value.tied.push_back(std::move(tied));
      }
    }
    const ValueId id(graph_.values.size());
    if (role == ValueRole::kParameter) parameters_.emplace(value.name, id);
    if (role == ValueRole::kBuffer) buffers_.emplace(value.name, id);
    graph_.values.push_back(std::move(value));
    return {};
  }

  Result<void> parse_op() {
    MOTLEY_RETURN_IF_ERROR(enter(kOps, "op"));
    Op op;
    const std::size_t first_result = graph_.values.size();
    do {
      Value value;
      value.producer = OpId(graph_.ops.size());
      MOTLEY_RETURN_IF_ERROR(define());
      MOTLEY_RETURN_IF_ERROR(parse_type(value));
      op.outputs.emplace_back(graph_.values.size());
      graph_.values.push_back(std::move(value));
    } while (in_.eat(','));
    MOTLEY_RETURN_IF_ERROR(in_.want('='));
    MOTLEY_RETURN_IF_ERROR(parse_op_name(op));
    MOTLEY_RETURN_IF_ERROR(in_.want('('));
    readable_ = first_result;
    MOTLEY_ASSIGN(op.arguments, arguments(')', 0));
    const bool forward = in_.eat_word("fwd");
    if (!forward && !in_.eat_word("bwd")) return in_.fail("fwd or bwd");
    op.direction = forward ? Direction::kForward : Direction::kBackward;
    MOTLEY_ASSIGN(op.module, in_.quoted("the quoted module path"));
    if (in_.eat_word("seq")) {
      MOTLEY_ASSIGN(op.sequence, in_.integer("a sequence number"));
    }
    op.returns_list = in_.eat_word("list");
    graph_.ops.push_back(std::move(op));
    return {};
  }

  /// Parses NAMESPACE::NAME or NAMESPACE::NAME.OVERLOAD.
  Result<void> parse_op_name(Op& op) {
    op.name = in_.word();
    if (op.name.empty() || !in_.eat_here("::")) return in_.fail("an operator such as aten::mm");
    const std::string_view base = in_.word();
    if (base.empty()) return in_.fail("an operator such as aten::mm");
    op.name.append("::").append(base);
    if (!in_.eat_here(".")) return {};
    op.overload = in_.word();
    if (op.overload.empty()) return in_.fail("the name of an overload");
    return {};
  }

  /// Parses arguments up to and including the closing bracket.
  Result<SymbolicArguments> arguments(char close, int depth) {
    SymbolicArguments list;
    if (in_.eat(close)) return list;
    do {
      MOTLEY_ASSIGN(SymbolicArgument one, argument(depth));
      list.push_back(std::move(one));
    } while (in_.eat(','));
    MOTLEY_RETURN_IF_ERROR(in_.want(close));
    return list;
  }

  Result<SymbolicArgument> argument(int depth) {
    const char c = in_.peek();
    if (c == '%') {
      MOTLEY_ASSIGN(const ValueId id, reference());
      return SymbolicArgument{id};
    }
    if (c == '[') {
      if (depth >= kMaxListDepth)
        return in_.fail(fmt::format("at most {} levels of lists", kMaxListDepth));
      in_.eat('[');
      MOTLEY_ASSIGN(SymbolicArguments list, arguments(']', depth + 1));
      return SymbolicArgument{std::move(list)};
    }
    if (c == '"') {
      MOTLEY_ASSIGN(std::string text, in_.quoted("a string"));
      return SymbolicArgument{std::move(text)};
    }
    if (c == '-' || (c >= '0' && c <= '9')) return number();
    return word_argument();
  }

  Result<SymbolicArgument> number() {
    const std::string_view token = in_.up_to(",)] \t");
    const auto integer = find_integer(token);
    const auto value = integer ? std::nullopt : find_written_float(token);
    if (!integer && !value) return in_.fail("a 64-bit integer or a float");
    in_.skip(token);
    return integer ? SymbolicArgument{*integer} : SymbolicArgument{*value};
  }

  Result<SymbolicArgument> word_argument() {
    constexpr std::string_view kWanted =
        "an argument: %ID, none, true, false, a number, a string, a list, size, number, complex, "
        "dtype, layout, device or memory_format";
    const std::string_view before = in_.rest();
    const std::string_view kind = in_.word();
    if (kind == "none") return SymbolicArgument{NoneArgument{}};
    if (kind == "true") return SymbolicArgument{true};
    if (kind == "false") return SymbolicArgument{false};
    if (kind == "inf" || kind == "nan") return SymbolicArgument{*find_float(kind)};
    if (kind == "size" || kind == "number") {
      MOTLEY_RETURN_IF_ERROR(in_.want('('));
      MOTLEY_ASSIGN(SizeExpr expr, in_.expression());
      MOTLEY_RETURN_IF_ERROR(in_.want(')'));
      if (kind == "size") return SymbolicArgument{SizeArgument{std::move(expr)}};
      return SymbolicArgument{SymbolicNumber{std::move(expr)}};
    }
    if (kind == "complex") return complex_number();
    if (kind == "dtype" || kind == "layout" || kind == "device" || kind == "memory_format") {
      MOTLEY_RETURN_IF_ERROR(in_.want('('));
      const LineLexer at = in_;
      const std::string_view chosen = in_.word();
      if (!is_keyword(kind, chosen))
        return at.fail(fmt::format("a {} of docs/formats/graph.md", kind));
      MOTLEY_RETURN_IF_ERROR(in_.want(')'));
      return SymbolicArgument{KeywordArgument{std::string(kind), std::string(chosen)}};
    }
    return in_.fail_at(before, kWanted);
  }

  Result<SymbolicArgument> complex_number() {
    ComplexArgument made;
    MOTLEY_RETURN_IF_ERROR(in_.want('('));
    MOTLEY_ASSIGN(made.real, real_number());
    MOTLEY_RETURN_IF_ERROR(in_.want(','));
    MOTLEY_ASSIGN(made.imaginary, real_number());
    MOTLEY_RETURN_IF_ERROR(in_.want(')'));
    return SymbolicArgument{made};
  }

  Result<double> real_number() {
    in_.peek();
    const std::string_view token = in_.up_to(",) \t");
    const auto value = find_written_float(token);
    if (!value) return in_.fail("a float such as 2.0");
    in_.skip(token);
    return *value;
  }

  /// Parses "%N" of a value defined on an earlier line.
  Result<ValueId> reference() {
    const std::string_view before = in_.rest();
    MOTLEY_RETURN_IF_ERROR(in_.want('%'));
    const std::string_view digits = in_.run_of("0123456789");
    const auto id = find_integer(digits);
    if (!id || *id >= static_cast<std::int64_t>(readable_))
      return in_.fail_at(before, "a value defined above");
    in_.skip(digits);
    return ValueId(*id);
  }

  Result<void> parse_output() {
    MOTLEY_RETURN_IF_ERROR(enter(kOutputs, "output"));
    readable_ = graph_.values.size();
    Output output;
    const std::string_view before = in_.rest();
    const std::string_view kind = in_.word();
    const auto* known = std::find_if(std::begin(kOutputKinds), std::end(kOutputKinds),
                                     [&](const auto& each) { return each.first == kind; });
    if (known == std::end(kOutputKinds))
      return in_.fail_at(before, "loss, extra, metric, gradient or update");
    output.kind = known->second;
    MOTLEY_ASSIGN(output.value, reference());
    if (kind == "gradient") {
      MOTLEY_ASSIGN(output.of, owner(parameters_, "parameter"));
    } else if (kind == "update") {
      MOTLEY_ASSIGN(output.of, owner(buffers_, "buffer"));
    } else if (kind == "metric" || (kind == "extra" && !in_.rest().empty())) {
      MOTLEY_ASSIGN(output.name, in_.quoted("the quoted name of the output"));
    }
    graph_.outputs.push_back(std::move(output));
    return {};
  }

  /// Parses `of "NAME"`.
  Result<ValueId> owner(const std::map<std::string, ValueId>& known, std::string_view what) {
    if (!in_.eat_word("of")) return in_.fail("'of'");
    MOTLEY_ASSIGN(const std::string name, in_.quoted(fmt::format("the quoted name of a {}", what)));
    const auto found = known.find(name);
    if (found != known.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [candidate, id] : known) names.push_back(candidate);
    return in_.fail(quote(name),
                    fmt::format("the name of a {}{}", what, suggestion_clause(name, names)));
  }

  LineLexer in_;
  Section section_ = kStart;
  std::size_t readable_ = 0;  // values below this id may be read
  std::map<std::string, ValueId> parameters_, buffers_;
  Graph graph_;
};

}  // namespace

Result<Graph> parse_graph(std::string_view text, const std::string& name) {
  if (!is_utf8(text))
    return usage_error("graph.parse", name + ": found bytes that are not UTF-8, wanted text");
  MOTLEY_ASSIGN(Graph graph, GraphParser(text, name).parse());
  MOTLEY_RETURN_IF_ERROR(verify_graph(graph, name));
  return graph;
}

}  // namespace motley::graph

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "motley/base/text.h"
#include "motley/graph/graph_text.h"

namespace motley::graph {
namespace {

constexpr int kMaxListDepth = 16;
constexpr std::string_view kVersion = "motley.graph/1";

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

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

/// Parses in one pass over the lines. `rest_` is the rest of the current line.
class GraphParser {
 public:
  explicit GraphParser(const std::string& name) : name_(name) {}

  Result<Graph> parse(std::string_view text) {
    if (!is_utf8(text)) {
      return usage_error("graph.parse", name_ + ": found bytes that are not UTF-8, wanted text");
    }
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      rest_ = trim(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line_;
      if (rest_.empty() || rest_[0] == '#') continue;
      MOTLEY_RETURN_IF_ERROR(parse_line());
    }
    if (section_ < kSizes) {
      ++line_;
      return fail("the end of the text",
                  section_ == kStart ? fmt::format("'{}'", kVersion) : "'name'");
    }
    return std::move(graph_);
  }

 private:
  /// Sections in their required order; an item moves to its section, never back.
  enum Section { kStart, kHeader, kSizes, kLeaves, kOps, kOutputs };

  tl::unexpected<Error> fail(std::string_view wanted) const { return fail(found(), wanted); }
  tl::unexpected<Error> fail(std::string_view found, std::string_view wanted) const {
    return usage_error("graph.parse",
                       fmt::format("{}:{}: found {}, wanted {}", name_, line_, found, wanted));
  }

  /// Returns the next word or character for messages.
  std::string found() const {
    if (rest_.empty()) return "the end of the line";
    std::size_t size = 1;
    const bool long_token = is_word(rest_[0]) || rest_[0] == '%' || rest_[0] == '-';
    while (long_token && size < rest_.size() && size < 40 &&
           (is_word(rest_[size]) || rest_[size] == '.' || rest_[size] == '/')) {
      ++size;
    }
    while (size < rest_.size() && (rest_[size] & 0xC0) == 0x80) ++size;  // a whole UTF-8 character
    return fmt::format("'{}'", rest_.substr(0, size));
  }

  void skip_blanks() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t')) rest_.remove_prefix(1);
  }
  bool eat(char c) {
    skip_blanks();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::string_view word() {
    skip_blanks();
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_word);
    const auto taken = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  bool eat_word(std::string_view wanted) {
    const std::string_view before = rest_;
    if (word() == wanted) return true;
    rest_ = before;
    skip_blanks();
    return false;
  }
  Result<void> want(char c) {
    if (eat(c)) return {};
    return fail(fmt::format("'{}'", c));
  }
  Result<void> want_end() {
    skip_blanks();
    if (rest_.empty()) return {};
    return fail("the end of the line");
  }

  Result<std::string> quoted(std::string_view wanted) {
    skip_blanks();
    if (rest_.empty() || rest_[0] != '"') return fail(wanted);
    std::string text;
    for (std::size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == '"') {
        rest_.remove_prefix(i + 1);
        return text;
      }
      if (rest_[i] != '\\') {
        text += rest_[i];
        continue;
      }
      const char escaped = ++i < rest_.size() ? rest_[i] : '\0';
      if (escaped != '"' && escaped != '\\' && escaped != 'n') {
        rest_.remove_prefix(i - 1);
        return fail(R"(\", \\ or \n)");
      }
      text += escaped == 'n' ? '\n' : escaped;
    }
    rest_ = {};
    return fail("a closing '\"'");
  }

  Result<std::int64_t> integer(std::string_view wanted) {
    skip_blanks();
    const std::size_t end = std::min(rest_.find_first_not_of("-0123456789"), rest_.size());
    const auto value = find_integer(rest_.substr(0, end));
    if (!value) return fail(wanted);
    rest_.remove_prefix(end);
    return *value;
  }

  Result<void> enter(Section section, std::string_view item) {
    if (section < section_) {
      return fail(
          fmt::format("'{}'", item),
          "the sections in order: name, size, input param buffer constant tangent, op, output");
    }
    section_ = section;
    return {};
  }

  Result<void> parse_line() {
    if (section_ == kStart) {
      if (rest_ != kVersion) return fail(fmt::format("'{}'", kVersion));
      section_ = kHeader;
      return {};
    }
    const std::string_view before = rest_;
    const std::string_view item = word();
    if (section_ == kHeader) {
      rest_ = item == "name" ? rest_ : before;
      if (item != "name") return fail("'name'");
      section_ = kSizes;
      MOTLEY_ASSIGN(graph_.name, quoted("the quoted name of the graph"));
      return want_end();
    }
    MOTLEY_RETURN_IF_ERROR(parse_item(item, before));
    return want_end();
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
    rest_ = before;
    return fail("size, input, param, buffer, constant, tangent, op or output");
  }

  Result<void> parse_size() {
    MOTLEY_RETURN_IF_ERROR(enter(kSizes, "size"));
    NamedSize size;
    size.name = word();
    if (size.name.empty()) return fail("the name of a size");
    MOTLEY_ASSIGN(size.min, integer("the smallest size"));
    MOTLEY_ASSIGN(size.max, integer("the largest size"));
    graph_.sizes.push_back(std::move(size));
    return {};
  }

  /// Parses "%N:" where N is the next id.
  Result<void> define() {
    MOTLEY_RETURN_IF_ERROR(want('%'));
    const std::string_view before = rest_;
    const std::string wanted = fmt::format("%{}, the next id", graph_.values.size());
    MOTLEY_ASSIGN(const std::int64_t id, integer(wanted));
    if (id != static_cast<std::int64_t>(graph_.values.size())) {
      rest_ = before;
      return fail(fmt::format("%{}", id), wanted);
    }
    return want(':');
  }

  Result<void> parse_type(Value& value) {
    const std::string_view before = rest_;
    const auto dtype = find_dtype(word());
    if (!dtype) {
      rest_ = before;
      skip_blanks();
      return fail("a dtype: f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool c64 c128 none");
    }
    value.dtype = *dtype;
    if (value.dtype == DType::kNone) return {};
    MOTLEY_RETURN_IF_ERROR(want('['));
    if (eat(']')) return {};
    do {
      MOTLEY_ASSIGN(SizeExpr size, expression());
      value.shape.push_back(std::move(size));
    } while (eat(','));
    return want(']');
  }

  /// Parses an expression up to the ',', ']' or ')' that ends it.
  Result<SizeExpr> expression() {
    skip_blanks();
    int depth = 0;
    std::size_t end = 0;
    for (; end < rest_.size(); ++end) {
      const char c = rest_[end];
      if (depth == 0 && (c == ',' || c == ']' || c == ')')) break;
      depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    const std::string_view text = trim(rest_.substr(0, end));
    auto expr = parse_size_expr(text);
    if (!expr) {
      const std::string shown(text.size() <= 80 ? text : "long text");
      return with_context(fmt::format("{}:{}: size expression '{}'", name_, line_, shown),
                          Error{ErrorKind::kUsage, "graph.parse", std::move(expr.error().message)});
    }
    rest_.remove_prefix(end);
    return expr;
  }

  Result<void> parse_leaf(ValueRole role, std::string_view item) {
    MOTLEY_RETURN_IF_ERROR(enter(kLeaves, item));
    Value value;
    value.role = role;
    MOTLEY_RETURN_IF_ERROR(define());
    MOTLEY_RETURN_IF_ERROR(parse_type(value));
    if (role != ValueRole::kTangent) {
      MOTLEY_ASSIGN(value.name, quoted("a quoted name"));
    }
    if (role == ValueRole::kParameter) {
      value.frozen = eat_word("frozen");
      while (eat_word("tied")) {
        MOTLEY_ASSIGN(std::string tied, quoted("a quoted name"));
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
    } while (eat(','));
    MOTLEY_RETURN_IF_ERROR(want('='));
    MOTLEY_RETURN_IF_ERROR(parse_op_name(op));
    MOTLEY_RETURN_IF_ERROR(want('('));
    readable_ = first_result;
    MOTLEY_ASSIGN(op.arguments, arguments(')', 0));
    const bool forward = eat_word("fwd");
    if (!forward && !eat_word("bwd")) return fail("fwd or bwd");
    op.direction = forward ? Direction::kForward : Direction::kBackward;
    MOTLEY_ASSIGN(op.module, quoted("the quoted module path"));
    if (eat_word("seq")) {
      MOTLEY_ASSIGN(op.sequence, integer("a sequence number"));
    }
    op.returns_list = eat_word("list");
    graph_.ops.push_back(std::move(op));
    return {};
  }

  /// Parses NAMESPACE::NAME or NAMESPACE::NAME.OVERLOAD.
  Result<void> parse_op_name(Op& op) {
    op.name = word();
    if (op.name.empty() || !rest_.starts_with("::")) return fail("an operator such as aten::mm");
    rest_.remove_prefix(2);
    const std::string_view base = word();
    if (base.empty()) return fail("an operator such as aten::mm");
    op.name += "::";
    op.name += base;
    if (!rest_.starts_with('.')) return {};
    rest_.remove_prefix(1);
    op.overload = word();
    if (op.overload.empty()) return fail("the name of an overload");
    return {};
  }

  /// Parses arguments up to and including the closing bracket.
  Result<SymbolicArguments> arguments(char close, int depth) {
    SymbolicArguments list;
    if (eat(close)) return list;
    do {
      MOTLEY_ASSIGN(SymbolicArgument one, argument(depth));
      list.push_back(std::move(one));
    } while (eat(','));
    MOTLEY_RETURN_IF_ERROR(want(close));
    return list;
  }

  Result<SymbolicArgument> argument(int depth) {
    skip_blanks();
    const char c = rest_.empty() ? '\0' : rest_[0];
    if (c == '%') {
      MOTLEY_ASSIGN(const ValueId id, reference());
      return SymbolicArgument{id};
    }
    if (c == '[') {
      if (depth >= kMaxListDepth)
        return fail(fmt::format("at most {} levels of lists", kMaxListDepth));
      rest_.remove_prefix(1);
      MOTLEY_ASSIGN(SymbolicArguments list, arguments(']', depth + 1));
      return SymbolicArgument{std::move(list)};
    }
    if (c == '"') {
      MOTLEY_ASSIGN(std::string text, quoted("a string"));
      return SymbolicArgument{std::move(text)};
    }
    if (c == '-' || (c >= '0' && c <= '9')) return number();
    return word_argument();
  }

  Result<SymbolicArgument> number() {
    const std::size_t end = std::min(rest_.find_first_of(",)] \t"), rest_.size());
    const std::string_view token = rest_.substr(0, end);
    if (const auto value = find_integer(token)) {
      rest_.remove_prefix(end);
      return SymbolicArgument{*value};
    }
    const auto value = find_written_float(token);
    if (!value) return fail("a 64-bit integer or a float");
    rest_.remove_prefix(end);
    return SymbolicArgument{*value};
  }

  Result<SymbolicArgument> word_argument() {
    constexpr std::string_view kWanted =
        "an argument: %ID, none, true, false, a number, a string, a list, size, number, complex, "
        "dtype, layout, device or memory_format";
    const std::string_view before = rest_;
    const std::string_view kind = word();
    if (kind == "none") return SymbolicArgument{NoneArgument{}};
    if (kind == "true") return SymbolicArgument{true};
    if (kind == "false") return SymbolicArgument{false};
    if (kind == "inf" || kind == "nan") return SymbolicArgument{*find_float(kind)};
    if (kind == "size" || kind == "number") {
      MOTLEY_RETURN_IF_ERROR(want('('));
      MOTLEY_ASSIGN(SizeExpr expr, expression());
      MOTLEY_RETURN_IF_ERROR(want(')'));
      if (kind == "size") return SymbolicArgument{SizeArgument{std::move(expr)}};
      return SymbolicArgument{SymbolicNumber{std::move(expr)}};
    }
    if (kind == "complex") return complex_number();
    if (kind == "dtype" || kind == "layout" || kind == "device" || kind == "memory_format") {
      MOTLEY_RETURN_IF_ERROR(want('('));
      const std::string_view at = rest_;
      const std::string_view chosen = word();
      if (!is_keyword(kind, chosen)) {
        rest_ = at;
        return fail(fmt::format("a {} of docs/formats/graph.md", kind));
      }
      MOTLEY_RETURN_IF_ERROR(want(')'));
      return SymbolicArgument{KeywordArgument{std::string(kind), std::string(chosen)}};
    }
    rest_ = before;
    return fail(kWanted);
  }

  Result<SymbolicArgument> complex_number() {
    ComplexArgument made;
    MOTLEY_RETURN_IF_ERROR(want('('));
    MOTLEY_ASSIGN(made.real, real_number());
    MOTLEY_RETURN_IF_ERROR(want(','));
    MOTLEY_ASSIGN(made.imaginary, real_number());
    MOTLEY_RETURN_IF_ERROR(want(')'));
    return SymbolicArgument{made};
  }

  Result<double> real_number() {
    skip_blanks();
    const std::size_t end = std::min(rest_.find_first_of(",) \t"), rest_.size());
    const auto value = find_written_float(rest_.substr(0, end));
    if (!value) return fail("a float such as 2.0");
    rest_.remove_prefix(end);
    return *value;
  }

  /// Parses "%N" of a value defined on an earlier line.
  Result<ValueId> reference() {
    const std::string_view before = rest_;
    MOTLEY_RETURN_IF_ERROR(want('%'));
    const std::size_t digits = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    const auto id = find_integer(rest_.substr(0, digits));
    if (!id || *id >= static_cast<std::int64_t>(readable_)) {
      rest_ = before;
      skip_blanks();
      return fail("a value defined above");
    }
    rest_.remove_prefix(digits);
    return ValueId(*id);
  }

  Result<void> parse_output() {
    MOTLEY_RETURN_IF_ERROR(enter(kOutputs, "output"));
    readable_ = graph_.values.size();
    Output output;
    const std::string_view before = rest_;
    const std::string_view kind = word();
    if (kind == "loss") {
      output.kind = OutputKind::kLoss;
    } else if (kind == "gradient") {
      output.kind = OutputKind::kGradient;
    } else if (kind == "update") {
      output.kind = OutputKind::kUpdate;
    } else if (kind == "metric") {
      output.kind = OutputKind::kMetric;
    } else if (kind != "extra") {
      rest_ = before;
      skip_blanks();
      return fail("loss, extra, metric, gradient or update");
    }
    MOTLEY_ASSIGN(output.value, reference());
    if (kind == "gradient") {
      MOTLEY_ASSIGN(output.of, owner(parameters_, "parameter"));
    } else if (kind == "update") {
      MOTLEY_ASSIGN(output.of, owner(buffers_, "buffer"));
    } else if (kind == "metric" || (kind == "extra" && !rest_.empty())) {
      MOTLEY_ASSIGN(output.name, quoted("the quoted name of the output"));
    }
    graph_.outputs.push_back(std::move(output));
    return {};
  }

  /// Parses `of "NAME"`.
  Result<ValueId> owner(const std::map<std::string, ValueId>& known, std::string_view what) {
    if (!eat_word("of")) return fail("'of'");
    MOTLEY_ASSIGN(const std::string name, quoted(fmt::format("the quoted name of a {}", what)));
    const auto found = known.find(name);
    if (found != known.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [candidate, id] : known) names.push_back(candidate);
    return fail(quote(name),
                fmt::format("the name of a {}{}", what, suggestion_clause(name, names)));
  }

  const std::string& name_;
  std::string_view rest_;
  int line_ = 0;
  Section section_ = kStart;
  std::size_t readable_ = 0;  // values below this id may be read
  std::map<std::string, ValueId> parameters_, buffers_;
  Graph graph_;
};

}  // namespace

Result<Graph> parse_graph(std::string_view text, const std::string& name) {
  MOTLEY_ASSIGN(Graph graph, GraphParser(name).parse(text));
  MOTLEY_RETURN_IF_ERROR(verify_graph(graph, name));
  return graph;
}

}  // namespace motley::graph

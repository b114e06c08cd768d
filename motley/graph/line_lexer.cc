#include "motley/graph/line_lexer.h"

#include <algorithm>
#include <utility>

#include "motley/base/text.h"

namespace motley::graph {
namespace {

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

}  // namespace

bool LineLexer::next_line() {
  while (!text_.empty()) {
    const std::size_t end = std::min(text_.find('\n'), text_.size());
    rest_ = trim(text_.substr(0, end));
    text_.remove_prefix(std::min(end + 1, text_.size()));
    ++line_;
    if (!rest_.empty() && rest_[0] != '#') return true;
  }
  ++line_;
  return false;
}

std::string_view LineLexer::word() {
  skip_blanks();
  const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_word);
  const auto taken = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
  rest_.remove_prefix(taken.size());
  return taken;
}

bool LineLexer::eat_word(std::string_view wanted) {
  const std::string_view before = rest_;
  if (word() == wanted) return true;
  rest_ = before;
  skip_blanks();
  return false;
}

Result<std::string> LineLexer::quoted(std::string_view wanted) {
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

Result<std::int64_t> LineLexer::integer(std::string_view wanted) {
  skip_blanks();
  const std::string_view digits = run_of("-0123456789");
  const auto value = find_integer(digits);
  if (!value) return fail(wanted);
  skip(digits);
  return *value;
}

Result<SizeExpr> LineLexer::expression() {
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

std::string LineLexer::found() const {
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

}  // namespace motley::graph

#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace motley {

/// The kind of a fault; decides the exit code (docs/interfaces.md).
enum class ErrorKind {
  kUsage,       ///< bad flags or a bad file: exit 2
  kInfeasible,  ///< no feasible plan: exit 3
  kStale,       ///< plan does not match model or cluster: exit 4
  kCheck,       ///< a check failed: exit 5
  kRuntime,     ///< the environment failed during a run: exit 1
};

/// A fault of the environment or the user. `message` starts in lower case and gives the place
/// (file:line or rank@host), what was found, what was wanted, and one thing to try. `code` is
/// stable, short and dotted: `folder.reason` ("cluster.unknown-key").
struct Error {
  ErrorKind kind = ErrorKind::kRuntime;
  std::string code;
  std::string message;

  bool operator==(const Error&) const = default;
};

/// A value, or the fault that prevented it.
template <typename T>
using Result = tl::expected<T, Error>;

/// `return usage_error("graph.parse", "m.motley:3: unknown dtype 'f31', wanted f64 f32 ...");`
inline tl::unexpected<Error> usage_error(std::string code, std::string message) {
  return tl::make_unexpected(Error{ErrorKind::kUsage, std::move(code), std::move(message)});
}
inline tl::unexpected<Error> stale_error(std::string code, std::string message) {
  return tl::make_unexpected(Error{ErrorKind::kStale, std::move(code), std::move(message)});
}
inline tl::unexpected<Error> runtime_error(std::string code, std::string message) {
  return tl::make_unexpected(Error{ErrorKind::kRuntime, std::move(code), std::move(message)});
}

/// Passes an error upwards with a context before its message: "FILE: message".
inline tl::unexpected<Error> with_context(const std::string& context, Error error) {
  error.message = context + ": " + error.message;
  return tl::make_unexpected(std::move(error));
}

}  // namespace motley

#define MOTLEY_CONCAT_INNER(a, b) a##b
#define MOTLEY_CONCAT(a, b) MOTLEY_CONCAT_INNER(a, b)

/// Returns the error of a Result expression, if it has one. For Result<void> and ignored values.
#define MOTLEY_RETURN_IF_ERROR(expression)                            \
  do {                                                                \
    if (auto motley_result = (expression); !motley_result)            \
      return ::tl::make_unexpected(std::move(motley_result).error()); \
  } while (false)

/// Declares or assigns the value, or returns the error: `MOTLEY_ASSIGN(auto g, parse_graph(text));`
#define MOTLEY_ASSIGN(declaration, expression) \
  MOTLEY_ASSIGN_IMPL(MOTLEY_CONCAT(motley_result_, __LINE__), declaration, expression)
#define MOTLEY_ASSIGN_IMPL(name, declaration, expression)           \
  auto name = (expression);                                         \
  if (!name) return ::tl::make_unexpected(std::move(name).error()); \
  declaration = std::move(*name)

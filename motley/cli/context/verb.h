#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "motley/base/check.h"
#include "motley/base/result.h"
#include "motley/cli/context/context.h"

namespace motley::cli {

/// A flag of a verb and the target of its value, for the parser in app.cc.
struct Flag {
  /// Text to parse. Usage errors name the flag, the text and what is wanted.
  struct Text {
    std::string usual;  ///< text of the initial value
    std::function<Result<void>(const std::string&)> take;
  };
  using Target =
      std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::optional<double>*,
                   std::optional<int>*, std::string*, std::vector<std::string>*, Text>;
  /// Is the target's initial value shown in the help?
  enum class Default { kHidden, kShown };

  std::string names;  ///< "-m,--model"; without hyphens: a required position
  /// The type decides the argument: bool takes none; optional<int> takes one or none, then 0.
  Target target;
  std::string help;
  Default shows = Default::kHidden;
  std::string group;  ///< heading in the help; "": the first
};

inline constexpr auto kShown = Flag::Default::kShown;

/// Makes a flag whose text is one of several words, each with a value.
template <typename T>
Flag::Text one_of(std::string code, std::string flag, T& into,
                  std::vector<std::pair<std::string, T>> words) {
  const auto usual = std::find_if(words.begin(), words.end(),
                                  [&](const auto& word) { return word.second == into; });
  MOTLEY_CHECK(usual != words.end());
  return {usual->first, [=, &into](const std::string& text) -> Result<void> {
            std::string wanted;
            for (const auto& [word, value] : words) {
              if (word == text) return into = value, Result<void>();
              wanted += (wanted.empty() ? "" : &word == &words.back().first ? " or " : ", ") + word;
            }
            return usage_error(code, flag + ": found '" + text + "', wanted " + wanted);
          }};
}

/// A word of the command line. `call` owns the targets of the flags.
struct Verb {
  std::string name, help;
  std::vector<Flag> flags;
  /// Under an external launcher only rank 0 runs it (launched.h); otherwise every process does.
  bool is_led = false;
  std::function<Result<int>(const Context&)> call;
};

/// Makes a verb with an options struct: `flags` connects it to flags, `call` gets it parsed.
template <typename Options>
Verb make_verb(std::string name, std::string help, std::vector<Flag> (*flags)(Options&),
               Result<int> (*call)(const Options&, const Context&)) {
  const auto options = std::make_shared<Options>();
  return {std::move(name), std::move(help), flags(*options), false,
          [options, call](const Context& context) { return call(*options, context); }};
}

/// Makes the verb one that other hosts take part in.
inline Verb led(Verb verb) {
  verb.is_led = true;
  return verb;
}

/// Moves flags, by their long names, under a heading of the help. Every name must exist.
void put_under(const std::string& heading, std::initializer_list<std::string_view> names,
               std::vector<Flag>& flags);

std::vector<Flag> common_flags(Context& context);

/// All verbs, in the order of `motley --help`. A new verb is a file verb_NAME.cc with a function
/// `Verb NAME_verb()` and a word in verb_table.cc.
std::vector<Verb> all_verbs();

}  // namespace motley::cli

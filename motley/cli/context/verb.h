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

/// A flag of a verb and where its value goes. A description only: app.cc hands it to the parser.
struct Flag {
  /// Text that becomes a value where it is given: usage errors name the flag, what was found and
  /// what is wanted.
  struct Text {
    std::string usual;  ///< that the first value is written as
    std::function<Result<void>(const std::string&)> take;
  };
  using Target =
      std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::optional<double>*,
                   std::optional<int>*, std::string*, std::vector<std::string>*, Text>;
  /// Does its line of help show the target's first value?
  enum class Default { kHidden, kShown };

  std::string names;  ///< "-m,--model"; without hyphens: a position, which must be given
  Target target;  ///< its type says what it takes; bool: nothing; optional<int>: maybe nothing, 0
  std::string help;
  Default shows = Default::kHidden;
  std::string group;  ///< heading of the help it stands under; "": the first one
};

/// Short for tables of flags.
inline constexpr auto kShown = Flag::Default::kShown;

/// A flag that is one of some words, by what each means.
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

/// A word of the command line. `targets` in its flags lie in what `call` holds.
struct Verb {
  std::string name, help;
  std::vector<Flag> flags;
  /// Under an external launcher rank 0 alone does it (launched.h); else each process by itself.
  bool is_led = false;
  /// The exit code, or the fault to be reported.
  std::function<Result<int>(const Context&)> call;
};

/// A verb over an options struct of its own: `flags` says where each flag goes in it, `call` is
/// given what they filled in.
template <typename Options>
Verb make_verb(std::string name, std::string help, std::vector<Flag> (*flags)(Options&),
               Result<int> (*call)(const Options&, const Context&)) {
  const auto options = std::make_shared<Options>();
  return {std::move(name), std::move(help), flags(*options), false,
          [options, call](const Context& context) { return call(*options, context); }};
}

/// The same, of which other hosts have a part.
inline Verb led(Verb verb) {
  verb.is_led = true;
  return verb;
}

/// Puts flags, by their long names, under a heading of the help; each must be there.
void put_under(const std::string& heading, std::initializer_list<std::string_view> names,
               std::vector<Flag>& flags);

/// Flags that every verb takes, beside its own and --help.
std::vector<Flag> common_flags(Context& context);

/// All verbs, in the order of `motley --help`. A new one is a file verb_NAME.cc with a function
/// `Verb NAME_verb()` and a word in verb_table.cc.
std::vector<Verb> all_verbs();

}  // namespace motley::cli

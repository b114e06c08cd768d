#include "motley/cli/app.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <type_traits>

#include "motley/base/text.h"
#include "motley/cli/context/progress_printer.h"
#include "motley/cli/context/verb.h"
#include "motley/cli/launched.h"
#include "motley/cli/options/script.h"
#include "motley/control/survey/worker_build.h"

namespace motley::cli {
namespace {

/// The verbs as subcommands of the parser.
struct Registry {
  CLI::App app{"Trains one PyTorch model over unequal devices.", "motley"};
  std::vector<Verb> verbs;
  std::vector<CLI::App*> commands;  ///< by verb
  std::optional<Error> fault;
};

CLI::Option* add_number_or_nothing(const Flag& flag, std::optional<int>& target,
                                   CLI::App& command) {
  const auto take = [&target](const CLI::results_t& words) {
    const auto number =
        words.empty() || words[0].empty() ? std::optional<std::int64_t>(0) : find_integer(words[0]);
    if (number) target = static_cast<int>(*number);
    return number.has_value();
  };
  return command.add_option(flag.names, take, flag.help)->expected(0, 1)->type_name("[INT]");
}

CLI::Option* add_text(const Flag& flag, const Flag::Text& text, std::optional<Error>& fault,
                      CLI::App& command) {
  const auto take = [&fault, take = text.take](const CLI::results_t& words) {
    if (const auto taken = take(words[0]); !taken && !fault) fault = taken.error();
    return true;
  };
  return command
      .add_option(flag.names, take, flag.help, false, [usual = text.usual] { return usual; })
      ->type_name("TEXT");
}

void add_flag(const Flag& flag, std::optional<Error>& fault, CLI::App& command) {
  CLI::Option* option = std::visit(
      [&]<typename T>(const T& target) -> CLI::Option* {
        if constexpr (std::is_same_v<T, bool*>)
          return command.add_flag(flag.names, *target, flag.help);
        else if constexpr (std::is_same_v<T, std::optional<int>*>)
          return add_number_or_nothing(flag, *target, command);
        else if constexpr (std::is_same_v<T, Flag::Text>)
          return add_text(flag, target, fault, command);
        else
          return command.add_option(flag.names, *target, flag.help);
      },
      flag.target);
  if (!flag.names.starts_with("-")) option->required();
  if (flag.shows == Flag::Default::kShown) option->capture_default_str();
  if (!flag.group.empty()) option->group(flag.group);
}

/// A repeatable flag then takes one value at a time, because the next word may be a position.
bool takes_words(const Verb& verb) {
  return std::any_of(verb.flags.begin(), verb.flags.end(),
                     [](const Flag& flag) { return !flag.names.starts_with("-"); });
}

void add_verbs(Registry& registry) {
  registry.verbs = all_verbs();
  for (const Verb& verb : registry.verbs) {
    CLI::App* command = registry.app.add_subcommand(verb.name, verb.help);
    command->fallthrough();
    command->footer("Every verb takes --json, --quiet and --print PHASE too: motley --help\n");
    for (const Flag& flag : verb.flags) add_flag(flag, registry.fault, *command);
    if (takes_words(verb))
      for (CLI::Option* option : command->get_options()) option->allow_extra_args(false);
    registry.commands.push_back(command);
  }
}

std::vector<std::string> normalise(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    if (!argument.starts_with("--")) continue;
    const auto end = std::min(argument.find('='), argument.size());
    std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  }
  return arguments;
}

/// Explains a mistyped verb or flag more clearly than CLI11 does.
std::string explain(const Registry& registry, const std::vector<std::string>& arguments,
                    const CLI::ParseError& error) {
  std::vector<std::string> names;
  for (const Verb& verb : registry.verbs) names.push_back(verb.name);
  if (!arguments.empty() && !arguments[0].starts_with("-") &&
      std::find(names.begin(), names.end(), arguments[0]) == names.end())
    return fmt::format("unknown verb '{}'{}; verbs: {}", arguments[0],
                       suggestion_clause(arguments[0], names), join(names, " "));
  std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return text;
  std::vector<const CLI::App*> asked = {&registry.app};  // every verb has --json
  for (const CLI::App* command : registry.commands)
    if (command->parsed()) asked.push_back(command);
  std::vector<std::string> flags;
  for (const CLI::App* command : asked)
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  for (const std::string& argument : arguments) {
    const std::string flag = argument.substr(0, argument.find('='));
    if (!flag.starts_with("--") || std::find(flags.begin(), flags.end(), flag) != flags.end())
      continue;
    std::string clause = suggestion_clause(flag, flags);
    const auto longer = std::find_if(flags.begin(), flags.end(), [&](const std::string& known) {
      return known.ends_with(flag.substr(1));  // --global-batch for --batch
    });
    if (clause.empty() && longer != flags.end()) clause = suggestion_clause(*longer, flags);
    return fmt::format("unknown flag '{}'{}", flag, clause);
  }
  // CLI11 stores them in reverse order.
  std::vector<std::string> words;
  for (const std::string_view word : split(std::string_view(text).substr(text.find(": ") + 2), ' '))
    words.emplace(words.begin(), word);
  return fmt::format("found {}, which no flag takes", join(words, " "));
}

std::string default_store(const std::map<std::string, std::string>& environment) {
  auto find = [&](const char* name) -> std::string {
    const auto it = environment.find(name);
    return it == environment.end() ? "" : it->second;
  };
  if (const auto path = find("MOTLEY_PROFILES"); !path.empty()) return path;
  if (const auto cache = find("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/motley/profiles.db";
  if (const auto home = find("HOME"); !home.empty()) return home + "/.cache/motley/profiles.db";
  return "motley-profiles.db";
}

void add_common_options(const std::string& program, Registry& registry, Context& context) {
  for (const Flag& flag : common_flags(context)) add_flag(flag, registry.fault, registry.app);
  registry.app.set_version_flag("--version", [program]() -> std::string {
    const std::string torch = control::read_worker_build(control::worker_of(program)).torch;
    return fmt::format("motley {}{}", MOTLEY_VERSION,
                       torch.empty() ? "" : fmt::format(" for PyTorch {}", torch));
  });
  registry.app.require_subcommand(1);
}

}  // namespace

std::string version() { return MOTLEY_VERSION; }

int run_app(std::vector<std::string> arguments, const Surroundings& surroundings) {
  Registry registry;
  Context context;
  context.environment = surroundings.environment;
  context.terminal = surroundings.terminal;
  context.workers = surroundings.workers;
  context.clock = surroundings.clock;
  context.program = surroundings.program;
  context.arguments = arguments;
  context.profile_store = default_store(context.environment);
  add_common_options(surroundings.program, registry, context);
  add_verbs(registry);

  if (const auto script = find_script(arguments))
    return report_error(context, become_script(*script, context));
  arguments = normalise(std::move(arguments));
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    registry.app.parse(reversed);
  } catch (const CLI::Success& asked) {
    return registry.app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return report_error(
        context, {ErrorKind::kUsage, "cli.usage",
                  explain(registry, arguments, error) + "; motley --help lists what there is"});
  }
  if (const auto known = check_phases(context); !known) return report_error(context, known.error());
  for (std::size_t i = 0; i < registry.verbs.size(); ++i) {
    if (!registry.commands[i]->parsed()) continue;
    Verb& verb = registry.verbs[i];
    if (registry.fault)
      verb.call = [&](const Context&) { return tl::make_unexpected(*registry.fault); };
    if (!context.launcher.empty())
      if (const auto done = context.workers->reach_by(context.launcher); !done)
        return report_error(context, done.error());
    const Result<int> code = verb.is_led ? call_launched(verb, context) : verb.call(context);
    if (!code && is_stop(code.error())) return kDone;
    return code ? *code : report_error(context, code.error());
  }
  return kUsage;
}

}  // namespace motley::cli

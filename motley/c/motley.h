#pragma once

/// The planner for other languages, as libmotley.so: no PyTorch, no process. Python loads it with
/// ctypes (python/motley/library.py), so one build serves every Python.
///
/// Texts are JSON in UTF-8. Each function gives one object that its caller frees with
/// `motley_free`; where it fails the object is {"error": {"code", "message"}}, as the command line
/// prints it. An object may be used by one thread at a time.
///
/// Example: two devices, of which one took twice as long for the same samples.
///
///   motley_policy* policy = NULL;
///   motley_free(motley_make_split_policy(
///       "{\"policy\": \"motley\", \"devices\": [{\"device\": \"a\", \"least\": 1, \"most\": 64},"
///       " {\"device\": \"b\", \"least\": 1, \"most\": 64}]}", &policy));
///   char* choices = motley_observe(policy,
///       "{\"seen\": \"step\", \"step\": 1, \"at\": 0.2, \"took\": 0.2, \"plan\": 0,"
///       " \"global_batch\": 48, \"devices\": ["
///       "{\"device\": \"a\", \"samples\": 24, \"ready\": [], \"end\": 0.1, \"update\": []},"
///       "{\"device\": \"b\", \"samples\": 24, \"ready\": [], \"end\": 0.2, \"update\": []}],"
///       " \"exchange\": [], \"blocking\": 0}");
///   // {"choices": [{"action": {"do": "split", "shares": [...]}, "expected_s", "why"}]}

#define MOTLEY_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/// Decides while a training runs (motley/policy/policy.h).
typedef struct motley_policy motley_policy;

/// Makes a policy of the split by its name (motley/adapt/policies.h):
///   {"policy", "devices": [{"device", "least", "most"}], "change_cost_s": 0, "epoch_steps": 100}
/// `least`: 0 lets a device idle. The last two may be absent. Gives {}; where it fails `*made`
/// stays as it was. Freed with `motley_drop_policy`.
MOTLEY_EXPORT char* motley_make_split_policy(const char* setting, motley_policy** made);

/// Tells it what was seen (an observation's text form, motley/policy/observation.h) and gives what
/// it wants done: {"choices": [{"action", "expected_s" (or null), "why"}]}.
MOTLEY_EXPORT char* motley_observe(motley_policy* policy, const char* observation);

MOTLEY_EXPORT void motley_drop_policy(motley_policy* policy);

/// Whole samples in the ratio of weights, from `least` to `most` for each:
///   {"batch", "devices": [{"device", "least", "most", "weight"}]}  ->  {"samples": [...]}
/// Error `c.limits` where the limits do not allow the batch.
MOTLEY_EXPORT char* motley_share_batch(const char* question);

/// What this process may use of its host (motley/cluster/host_limits.h), as it is now:
///   {"cpu_quota": cores or null, "memory": bytes or null}
MOTLEY_EXPORT char* motley_host_limits(void);

MOTLEY_EXPORT void motley_free(char* text);

#ifdef __cplusplus
}
#endif

#pragma once

/// The planner for other languages, as libmotley.so: no PyTorch, no process. Python loads it with
/// ctypes (python/motley/library.py), so one build serves every Python.
///
/// Texts are JSON in UTF-8. Each function returns one object, which its caller frees with
/// `motley_free`. On failure the object is {"error": {"code", "message"}}, as the command line
/// prints it. One thread at a time may use an object.
///
/// Example: two devices; one took twice as long for the same samples.
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

/// A policy (motley/policy/policy.h).
typedef struct motley_policy motley_policy;

/// Makes a split policy by name (motley/adapt/policies.h):
///   {"policy", "devices": [{"device", "least", "most"}], "change_cost_s": 0, "epoch_steps": 100}
/// `least` 0 lets a device idle. The last two keys are optional. Returns {}; on failure `*made` is
/// unchanged. Free it with `motley_drop_policy`.
MOTLEY_EXPORT char* motley_make_split_policy(const char* setting, motley_policy** made);

/// Passes an observation (its text form, motley/policy/observation.h) to the policy. Returns the
/// policy's choices: {"choices": [{"action", "expected_s" (or null), "why"}]}.
MOTLEY_EXPORT char* motley_observe(motley_policy* policy, const char* observation);

MOTLEY_EXPORT void motley_drop_policy(motley_policy* policy);

/// Splits a batch into whole samples in the ratio of the weights, within `least` and `most`:
///   {"batch", "devices": [{"device", "least", "most", "weight"}]}  ->  {"samples": [...]}
/// Error `c.limits`: the limits do not allow the batch.
MOTLEY_EXPORT char* motley_share_batch(const char* question);

/// Returns what this process may use of its host now (motley/cluster/host_limits.h):
///   {"cpu_quota": cores or null, "memory": bytes or null}
MOTLEY_EXPORT char* motley_host_limits(void);

MOTLEY_EXPORT void motley_free(char* text);

#ifdef __cplusplus
}
#endif

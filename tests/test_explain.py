"""`motley explain`: what binds a plan, and what the planner says to questions about it."""

import pytest

CLUSTER = """schema = "motley.cluster/1"
name = "rented"
[[node]]
name = "a"
price_per_hour = 8
  [[node.device]]
  kind = "rtx4090"
  count = 2
[[node]]
name = "b"
price_per_hour = 1
  [[node.device]]
  kind = "t4"
[[link]]
all = true
bandwidth = "10Gbps"
latency = "50us"
"""


@pytest.fixture
def planned(motley, cnn, tmp_path):
    cluster, plan = tmp_path / "rented.toml", tmp_path / "plan.json"
    cluster.write_text(CLUSTER)
    common = ["-m", cnn, "-C", cluster, "--profiles", tmp_path / "profiles.db"]
    assert motley("plan", *common, "--global-batch", 4096, "-o", plan).code == 0
    return [plan, *common]


def test_an_answer_is_the_plan_of_the_edited_file(motley, planned, tmp_path):
    said = motley("explain", *planned, "--what-if", "+1 rtx4090@a", "--samples", 8192, "--json").json
    (answer,) = said["what_if"]
    edited = tmp_path / "edited.toml"
    edited.write_text(CLUSTER.replace("count = 2", "count = 3").replace("price_per_hour = 8", "price_per_hour = 12"))
    again = motley("plan", *planned[1:3], "-C", edited, *planned[5:], "--global-batch", 4096, "--samples", 8192, "--json").json
    assert answer["step_s"] == again["predicted_step_s"]
    assert answer["plan"]["batch_split"] == again["batch_split"]
    assert answer["price_per_hour"] == again["price_per_hour"] == 13
    assert answer["modelled"] == []  # of kinds that are not here nothing can be measured
    # Two steps of 4096 make 8192 samples.
    assert answer["cost_per_epoch"] == again["cost_per_epoch"] == pytest.approx(2 * 13 / 3600 * answer["step_s"])


def test_what_binds_and_the_obvious_questions(motley, planned):
    said = motley("explain", *planned, "--json").json
    assert said["binding"][0]["what"] == "compute"
    assert said["binding"] == sorted(said["binding"], key=lambda each: -each["share"])
    asked = [each["what"] for each in said["what_if"]]
    assert {"+1 rtx4090@a", "+1 t4@b", "-a:0", "-b:0", "link all x2", "batch x2"} <= set(asked)
    speeds = [each["samples_per_s"] for each in said["what_if"]]
    assert speeds == sorted(speeds, reverse=True)
    costs = {each["what"]: each["cost_per_sample"] for each in said["what_if"]}
    assert said["by_cost"] == sorted(asked, key=lambda what: costs[what])
    assert said["planned_again"]["step_s"] == said["step_s"]
    assert said["why"]
    text = motley("explain", *planned).stdout
    assert "what binds\n  compute: " in text and "9.00 an hour" in text and "the cheapest sample first: " in text


def test_what_does_not_fit_is_an_answer(motley, planned):
    (answer,) = motley("explain", *planned, "--planner", "equal", "--what-if", "memory b:0 64MiB", "--json").json["what_if"]
    assert answer["feasible"] is False and answer["step_s"] is None
    assert "b:0 needs" in answer["why_not"]


@pytest.mark.parametrize(
    "question, message",
    [
        ("-c:0", "'-c:0': the cluster has no 'c:0', did you mean 'a:0'?; devices: a:0, a:1, b:0; nodes: a, b; kinds: rtx4090, t4"),
        ("link a-b x2", "'link a-b x2': the cluster has no link 'a-b'; links: all"),
        ("+1 rtx409@a", "unknown device kind 'rtx409', did you mean 'rtx4090'?"),
        ("batch none", "'batch none': found 'none', wanted samples a step such as 256, or x2; now 4096"),
    ],
)
def test_questions_about_nothing(motley, planned, question, message):
    outcome = motley("explain", *planned, "--what-if", question)
    assert outcome.code == 2
    assert message in outcome.stderr


def test_the_last_device(motley, planned, tmp_path):
    one = tmp_path / "one.toml"
    one.write_text(CLUSTER.split("[[node]]\nname = \"b\"")[0].replace("count = 2", "count = 1"))
    assert motley("plan", *planned[1:3], "-C", one, *planned[5:], "--global-batch", 64, "-o", planned[0]).code == 0
    outcome = motley("explain", planned[0], *planned[1:3], "-C", one, *planned[5:], "--what-if", "-a:0")
    assert outcome.code == 2
    assert "'-a:0': no device would be left; devices: a:0" in outcome.stderr

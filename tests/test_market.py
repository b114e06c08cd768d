"""`motley plan --market`: what to rent for a deadline or a budget."""

import pytest

SERVERS = """schema = "motley.market/1"
name = "servers"
[server]
service = "20ms"
price_per_hour = 0.1
most = 2
[[offer]]
kind = "p100"
zone = "us-east1-c"
price_per_hour = 1.5
step = "100ms"
most = 3
[[offer]]
kind = "p100"
zone = "us-east1-c"
spot = true
price_per_hour = 0.5
step = "100ms"
most = 2
[[offer]]
kind = "p100"
zone = "us-west1-b"
spot = true
price_per_hour = 0.4
step = "100ms"
most = 2
"""

GPUS = """schema = "motley.market/1"
name = "gpus"
[[offer]]
kind = "v100-16g"
zone = "us-west1-b"
spot = true
price_per_hour = 0.74
most = 2
[[offer]]
kind = "v100-16g"
zone = "us-west1-b"
price_per_hour = 2.48
most = 1
"""


@pytest.fixture
def market(tmp_path):
    def write(text):
        path = tmp_path / "market.toml"
        path.write_text(text)
        return path

    return write


def test_what_to_rent_for_a_deadline(motley, market):
    words = ["plan", "--market", market(SERVERS), "--steps", 360_000]
    answer = motley(*words, "--deadline", "5h", "--json").json
    chosen = answer["chosen"]
    assert chosen in answer["market"] and chosen["late"] <= 0.05 and chosen["time_s"] < 5 * 3600
    # Nothing cheaper is late seldom enough, and nothing of the table beats anything else of it.
    costs = [mix["cost"] for mix in answer["market"]]
    assert costs == sorted(costs)
    assert all(mix["late"] > 0.05 for mix in answer["market"] if mix["cost"] < chosen["cost"])
    for mix in answer["market"]:
        zones = {machines["zone"] for machines in mix["machines"]}
        assert len(zones) == 1  # regions stay apart
    assert any("one more server would bring" in line for line in answer["why"])
    # Everybody pays for time: machines and servers by the hour. On demand nothing varies.
    quick = motley(*words, "--budget", 1000, "--json").json["chosen"]
    assert quick["time_s"] == min(mix["time_s"] for mix in answer["market"])
    assert motley(*words, "--deadline", "5h").stdout.count("\n*") == 1


def test_nothing_fits(motley, market):
    done = motley("plan", "--market", market(SERVERS), "--steps", 360_000, "--deadline", "1min", "--json")
    assert done.code == 3 and done.json["chosen"] is None and done.json["market"]
    assert done.json["why"][0].startswith("the quickest mix takes ")


def test_a_model_is_planned_for_each_set_of_machines(motley, market, mlp):
    answer = motley("plan", "-m", mlp, "--market", market(GPUS), "--steps", 1_000_000, "--global-batch", 64,
                    "--deadline", "12h", "--json")  # fmt: skip
    assert answer.code == 0, answer.stderr
    # One to three machines of a kind, and 3 x 2 - 1 mixes of what is spot.
    assert (answer.json["clusters"], answer.json["mixes"]) == (3, 5)
    assert answer.json["chosen"]["step_s"] > 0


@pytest.mark.parametrize("text, flags, message", [
    (SERVERS.replace("price_per_hour = 1.5\n", ""), [], "market.toml:7: [[offer]] has no key 'price_per_hour'"),
    (SERVERS.replace("market/1", "market/9"), [], 'market.toml:1: schema "motley.market/9", wanted "motley.market/1"'),
    (SERVERS, ["--deadline", "soon"], "--deadline: found 'soon', wanted a time such as 120s, 3ms, 100us"),
    (SERVERS, ["--budget", 0], "--budget: found 0, wanted more than 0"),
    (SERVERS, ["-C", "x.toml"], "--market says which devices there are; leave -C out"),
    (GPUS, [], "which model? give -m MODEL.motley (written by python -m motley.export)"),
])  # fmt: skip
def test_bad_input(motley, market, text, flags, message):
    done = motley("plan", "--market", market(text), "--steps", 1000, *flags)
    assert done.code == 2 and message in done.stderr


@pytest.mark.parametrize("flags", [["--deadline", "8h"], ["--budget", 3], ["--steps", 100]])
def test_what_goes_with_a_market_wants_one(motley, mlp, cluster, flags):
    done = motley("plan", "-m", mlp, "-C", cluster, "--global-batch", 8, *flags)
    assert done.code == 2 and "give --market" in done.stderr


def test_steps_are_wanted(motley, market):
    done = motley("plan", "--market", market(SERVERS))
    assert done.code == 2 and "--market: how long is the training? give --steps N" in done.stderr

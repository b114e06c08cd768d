"""What the search for plans of stages proves and chooses, against HiGHS: linear and integer programs over all shapes of
drawn small instances (stages_main.cc prints them). Up to nine devices of three kinds, in hosts of
their own or in the same ones, where unlike ones may share a stage, which is more than plan_proof.h tries out."""

import json
import statistics
import subprocess

import highspy
import numpy as np
import pytest
from conftest import BUILD, SLOW

COUNT = 300 if SLOW else 40
SLACK = 1e-6  # of a simplex, and of times


def draw(*words):
    out = subprocess.run([BUILD / "stages_tool", str(COUNT), *words], capture_output=True, text=True, check=True)
    return json.loads(out.stdout)


def most_samples(question, columns, whole, exactly=None):
    """The most samples of columns [(samples, devices)] within the devices, in fractions or whole; -1: not `exactly` so many."""
    solver = highspy.Highs()
    solver.silent()
    inf = solver.getInfinity()
    limits = [*question["devices"], question["most_replicas"]]
    for limit in limits:
        solver.addRow(-inf, limit, 0, np.array([], dtype=np.int32), np.array([], dtype=np.double))
    if exactly is not None:
        solver.addRow(exactly, exactly, 0, np.array([], dtype=np.int32), np.array([], dtype=np.double))
    for samples, devices in columns:
        entries = [*devices, 1] + ([samples] if exactly is not None else [])
        rows = [row for row, entry in enumerate(entries) if entry]
        values = np.array([entries[row] for row in rows], dtype=np.double)
        solver.addCol(-samples, 0, inf, len(rows), np.array(rows, dtype=np.int32), values)
    if whole:
        for column in range(len(columns)):
            solver.changeColIntegrality(column, highspy.HighsVarType.kInteger)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return -1
    assert status == highspy.HighsModelStatus.kOptimal, status
    return -solver.getInfoValue("objective_function_value")[1]


def columns_within(question, seconds, key="seconds", every=False):
    """Of each set of devices the most samples in the time, or every number of them."""
    columns = []
    for offer in question["offers"]:
        does = [n for n, least in enumerate(offer[key], 1) if least is not None and least <= seconds * (1 + 1e-12)]
        columns += [(n, offer["devices"]) for n in (does if every else does[-1:])]
    return columns


def least_whole_step(question):
    """The least time in which whole replicas do all samples, nothing exchanged and nobody waiting but for the fill."""
    times = sorted({t for offer in question["offers"] for t in offer["full_seconds"] if t is not None})
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        columns = columns_within(question, times[middle], "full_seconds", every=True)
        if most_samples(question, columns, whole=True, exactly=question["samples"]) >= 0:
            high = middle
        else:
            low = middle + 1
    return times[low] if low < len(times) else None


@pytest.fixture(scope="module", params=["1", "2", "3 mixed"])
def questions(request):
    return draw(*request.param.split())


def test_samples_in_a_time_are_those_of_the_linear_program(questions):
    answers = {True: 0, False: 0}
    for question in questions:
        for asked in question["asked"]:
            most = most_samples(question, columns_within(question, asked["seconds"]), whole=False)
            answers[asked["possible"]] += 1
            if asked["possible"]:
                assert most >= question["samples"] * (1 - SLACK), (question, asked)
            else:
                proved = most_samples(question, columns_within(question, asked["seconds"], "full_seconds"), whole=False)
                assert proved <= asked["worth"] * (1 + SLACK) < question["samples"] * (1 + SLACK), (question, asked)
    assert min(answers.values()) > COUNT


def test_whole_replicas_are_those_of_the_integer_program(questions):
    for question in questions:
        chosen = question["chosen"]
        columns = columns_within(question, chosen["seconds"])
        most = most_samples(question, columns, whole=True) if columns else 0
        assert chosen["samples"] == pytest.approx(most, abs=SLACK), question


def test_steps_lie_between_the_integer_program_and_its_relaxation(questions):
    """bound <= what is found; the best whole plan of the model <= what is found of one stage a device, which also waits and exchanges."""
    ratios = []
    for question in questions:
        least = least_whole_step(question)
        assert (least is None) == (question["step_s"] is None), question
        if least is None:
            continue
        assert question["bound_s"] <= question["step_s"] * (1 + SLACK)
        assert question["apart_step_s"] >= least * (1 - SLACK), question
        ratios.append(question["apart_step_s"] / least)
    assert len(ratios) > 0.8 * COUNT
    assert statistics.median(ratios) < 1.15, statistics.quantiles(ratios)

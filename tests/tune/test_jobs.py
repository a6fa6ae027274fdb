"""Who does which job when: workers here are objects that run what they are asked."""

import threading
from contextlib import contextmanager

import pytest

from neoflow.tune.jobs import Desk, Job
from neoflow.tune.process import Answer, Request

SOON = 5.0


class Fake:
    is_alive = True

    def __init__(self):
        self.is_paused = False

    def ask(self, request):
        return Answer("ok", {"said": request.message["do"](self)})

    def pause(self):
        self.is_paused = True

    def resume(self):
        self.is_paused = False


@pytest.fixture
def desk():
    made = Desk(2, lambda last: Fake(), lambda worker: None, lambda: None)
    yield made
    made.close()


def job(do, **more):
    return Job(lambda: Request({"do": do}), **more)


def said(future):
    return future.result(SOON).message["said"]


def test_what_runs_alone_has_the_others_paused_and_holds_its_turn(desk):
    begun, held, ended = threading.Event(), [], threading.Event()

    def build(worker):
        begun.set()
        ended.wait(SOON)
        return worker

    @contextmanager
    def turn():
        held.append(True)
        yield
        held.append(False)

    building = desk.submit(job(build, places=(1,)))
    assert begun.wait(SOON)
    alone = desk.submit(job(lambda _: (desk._asked[1].is_paused, list(held)), places=(0,), alone=turn))
    assert said(alone) == (True, [True]) and held == [True, False]
    ended.set()
    assert not said(building).is_paused


def test_builds_go_first_while_somebody_thinks(desk):
    order = []
    with desk.thinking():
        alone = desk.submit(job(lambda _: order.append("alone"), places=(0,), alone=contextmanager(lambda: iter([0]))))
        for _ in range(4):
            said(desk.submit(job(lambda _: order.append("build"))))
        assert not alone.done()
    said(alone)
    assert order == ["build"] * 4 + ["alone"]


def test_what_is_for_one_worker_goes_before_what_any_may_do(desk):
    go, order = threading.Event(), []
    held = [desk.submit(job(lambda _: go.wait(SOON), places=(n,))) for n in (0, 1)]
    waiting = [desk.submit(job(lambda _: order.append("any"))) for _ in range(3)]
    waiting += [desk.submit(job(lambda _: order.append("own"), places=(n,))) for n in (0, 1)]
    go.set()
    for future in (*held, *waiting):
        future.result(SOON)
    assert sorted(order[:2]) == ["own", "own"] or order[0] == "own"


def test_what_waits_can_be_dropped(desk):
    go = threading.Event()
    held = [desk.submit(job(lambda _: go.wait(SOON))) for _ in range(2)]
    while len(desk._asked) < 2:
        pass
    waiting = desk.submit(job(lambda _: None))
    desk.drop()
    assert waiting.cancelled()
    go.set()
    assert all(map(said, held))


def test_an_exception_is_the_answers(desk):
    def fail(last):
        raise RuntimeError("no worker")

    desk._taken = fail
    with pytest.raises(RuntimeError, match="no worker"):
        desk.submit(job(lambda _: None)).result(SOON)

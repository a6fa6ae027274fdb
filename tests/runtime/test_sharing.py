"""Who waits for whom, and what it costs one thread."""

import os
import threading

import pytest

from neoflow.runtime.sharing import Sharing

A, B, C = (frozenset({n}) for n in "abc")


def together(first, second, seconds):
    """Whether two actions are inside at once, within so many seconds."""
    inside, met = threading.Barrier(2), []

    def meet():
        try:
            inside.wait(seconds)
            met.append(True)
        except threading.BrokenBarrierError:
            met.append(False)

    threads = [threading.Thread(target=way, args=(meet,)) for way in (first, second)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return all(met)


def test_readers_run_together_and_a_writer_alone():
    sharing = Sharing()
    uses = {
        "reads a": sharing.join(A, frozenset()),
        "reads a too": sharing.join(A | B, frozenset()),
        "writes a": sharing.join(A, A),
        "writes b": sharing.join(B, B),
        "reads a, writes c": sharing.join(A | C, C),
    }
    ways = {name: lambda action, use=use: sharing.run(use, action) for name, use in uses.items()}
    ways["gets a"] = lambda action: sharing.read(A, action)
    ways["sets a"] = lambda action: sharing.write(A, action)
    ways["sets c"] = lambda action: sharing.write(C, action)
    for first, second, wanted in (
        ("reads a", "reads a too", True),
        ("reads a", "writes a", False),
        ("reads a", "writes b", True),
        ("reads a too", "writes b", False),
        ("writes a", "writes b", False),  # both wait for the one that reads a and b
        ("writes a", "reads a, writes c", False),
        ("writes b", "reads a, writes c", True),
        ("reads a", "reads a, writes c", True),
        ("gets a", "reads a", True),
        ("gets a", "writes a", False),
        ("gets a", "writes b", True),
        ("sets a", "reads a", False),
        ("sets a", "writes b", False),  # the same
        ("sets c", "reads a, writes c", False),
        ("sets c", "reads a", True),
        ("sets a", "gets a", False),
    ):
        assert together(ways[first], ways[second], 20 if wanted else 0.1) == wanted, (first, second)


def test_one_that_joins_waits_for_a_writer_that_runs():
    sharing, begun, ended = Sharing(), threading.Event(), []
    writer = sharing.join(A, A)

    def write():
        begun.set()
        threading.Event().wait(0.2)
        ended.append("written")

    thread = threading.Thread(target=sharing.run, args=(writer, write))
    thread.start()
    begun.wait()
    sharing.run(sharing.join(A, frozenset()), lambda: ended.append("read"))
    thread.join()
    assert ended == ["written", "read"]


def test_many_that_cross_do_not_wait_in_a_circle():
    sharing = Sharing()
    sets = [frozenset({m, (m + 1) % 7, (m + 3) % 7}) for m in range(7)]
    uses = [sharing.join(s, s) for s in sets]
    count = []

    def work(n):
        for k in range(200):
            sharing.run(uses[(n + k) % 7], lambda: count.append(1))
            sharing.write(sets[k % 7], lambda: count.append(1))
            if k % 50 == 0:
                uses.append(sharing.join(sets[n], sets[n]))

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len(count) == 2400


def test_a_thread_may_read_inside_of_its_own_call():
    sharing = Sharing()
    use = sharing.join(A, A)
    assert sharing.run(use, lambda: sharing.read(A, lambda: 3)) == 3


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, where another test has imported it
def test_a_child_of_fork_finds_no_lock_held():
    sharing = Sharing()
    use = sharing.join(A, A)

    def fork():
        child = os.fork()
        if not child:
            os._exit(0 if sharing.run(use, lambda: 5) + sharing.read(A, lambda: 6) == 11 else 1)
        return os.waitpid(child, 0)[1]

    found = []
    thread = threading.Thread(target=lambda: sharing.run(use, lambda: found.append(fork())))
    thread.start()
    thread.join()
    assert found == [0]


@pytest.mark.parametrize("others", [0, 1, 3, 40, 3000])
def test_what_a_call_costs(others):
    """A lock for each function that touches what is written; none for those that only read what this one reads."""
    sharing = Sharing()
    readers = [sharing.join(A, frozenset()) for _ in range(others)]
    writer = sharing.join(A, A)
    assert sharing.run(writer, lambda: 1) == sharing.run(writer, lambda: 1) == 1
    assert others + 1 <= len(writer.locks) <= others + 4
    for r in readers[:5]:
        assert sharing.run(r, lambda: 2) == 2 and len(r.locks) == 1

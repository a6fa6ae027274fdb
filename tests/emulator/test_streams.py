"""Streams in software: what comes in the middle of an action waits for its end."""

from tests.emulator.driver import EmulatedDriver
from tests.emulator.streams import MAIN, UPLOADS, Streams


def test_memory_that_is_freed_in_the_middle_of_an_action_lets_nothing_go_before_its_end():
    """As by a finalizer that the interpreter runs there."""
    driver, done = EmulatedDriver(), []
    memory, pinned = driver.allocate(256), driver.pinned(256)

    def first() -> None:
        driver.free(memory)
        driver.free_pinned(pinned)
        driver.synchronize()
        done.append(("first", driver.used))

    driver.streams.put(MAIN, first)
    driver.streams.put(MAIN, lambda: done.append(("second", driver.used)))
    driver.synchronize()
    assert done == [("first", 256), ("second", 256)] and driver.used == 0


def test_an_action_may_wait_for_another_stream():
    streams, done = Streams(late_uploads=True), []
    streams.put(UPLOADS, lambda: done.append("upload"))
    streams.wait(MAIN, UPLOADS, streams.moment(UPLOADS))
    streams.put(MAIN, lambda: done.append("step"))
    streams.finish()
    assert done == ["upload", "step"]

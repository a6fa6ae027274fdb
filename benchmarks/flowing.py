"""Activations in blocks, or with their dimensions swapped, beside the same program without: a small one of each, where
it pays, and models in inference of one sample.

    python -m benchmarks.flowing [MODEL] ...

Times are of the processor, by one thread: what others do on the machine at hand counts less so. In turns, the median
of the ratios.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

import neoflow as nf
from neoflow.models import build_model
from neoflow.rewriting.flowing import BLOCKED, SWAPPED

TURNS, CALLS = 15, 5


def channels():
    """Depthwise convolutions of 64 channels between two 1x1, in the cache of a core."""
    x = nf.placeholder((1, 64, 60, 60), name="x")
    y = x
    for n in range(2):
        w = nf.parameter((64, 64, 1, 1), name=f"w{n}", init=lambda s, rng: 0.1 * rng.standard_normal(s))
        v = nf.parameter((64, 3, 3), name=f"v{n}", init=lambda s, rng: 0.1 * rng.standard_normal(s))
        y = nf.relu(nf.nn.functional.conv2d(y, w))
        y = nf.relu(nf.expr("z[b,c,p,q] = sum[r,s](y[b,c,p+r,q+s] * v[c,r,s])", y=y, v=v))
    return [nf.mean(y, axis=(2, 3))], x


def turned():
    """The largest of nine neighbours of what was computed with its dimensions the other way round."""
    x = nf.placeholder((520, 512), name="x")
    y = nf.transpose(nf.tanh(x))
    r = nf.axis(9, "r")
    return [nf.compute((512, 512), lambda j, i: nf.max(y[j, i + r], axis=[r]), name="z")], x


def compiled(outputs, x):
    """With both, and with neither."""
    found = []
    for off in ("", f"{BLOCKED},{SWAPPED}"):
        os.environ["NEOFLOW_WITHOUT"] = off
        found.append(nf.compile(outputs, [x]))
    return found


def beside(name, outputs, x):
    """One line of what is gained."""
    laid, plain = compiled(outputs, x)
    array = np.random.default_rng(0).uniform(0, 1, x.shape).astype(np.float32)
    (a, *_), (b, *_) = laid(array), plain(array)
    assert np.allclose(a, b, rtol=1e-3, atol=1e-3 * np.abs(b).max()), name
    times = [[], []]
    for _ in range(TURNS):
        for each, f in zip(times, (laid, plain), strict=True):
            f(array)
            each.append(min(_call(f, array) for _ in range(CALLS)))
    ratio = np.median(np.divide(times[1], times[0]))
    now, before = (1e6 * np.median(t) for t in times)
    said = "; ".join(r.summary for r in laid.compiled.trace.records if r.name in (BLOCKED, SWAPPED))
    if os.environ.get("V"):
        print(laid.explain(SWAPPED), laid.explain(BLOCKED))
    print(f"{name:12} {before:8.0f} us to {now:8.0f} us, {ratio:.2f} times as fast: {said}", flush=True)


def _call(f, array):
    begun = time.thread_time()
    f(array)
    return time.thread_time() - begun


def main(models):
    os.environ["NEOFLOW_THREADS"] = "1"
    beside("channels", *channels())
    beside("turned", *turned())
    for name in models:
        model = build_model(name, 1)
        beside(name, [model.scores], model.x)


if __name__ == "__main__":
    main(sys.argv[1:])

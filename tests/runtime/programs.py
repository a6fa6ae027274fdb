"""A program small enough to be trained with the NumPy interpreter in place of compiled kernels."""

import numpy as np

import neoflow as nf
from neoflow.data import Batches, Dataset
from neoflow.runtime.store import STORE
from neoflow.train.trainer import Trainer


class Interpreted:
    """What `nf.compile` gives, evaluated with NumPy."""

    def __init__(self, outputs, inputs=(), updates=None, target="cpu", precision="fp32", tune=None, memory=None):
        updates = dict(updates or {})
        roots = nf.mixed_precision([*outputs, *updates.values()], precision)
        self.outputs, self.inputs = roots[: len(outputs)], list(inputs)
        self.updates = dict(zip(updates, roots[len(outputs) :], strict=True))
        self.runs, self.given = 0, []

    def __call__(self, *arrays):
        assert len(arrays) == len(self.inputs)
        feeds = dict(zip(self.inputs, arrays, strict=True))
        roots = [*self.outputs, *self.updates.values()]
        feeds.update({p: STORE.get(p) for p in parameters_of(roots)})
        results = nf.evaluate(roots, feeds)
        for p, value in zip(self.updates, results[len(self.outputs) :], strict=True):
            STORE.set(p, value)
        self.runs, self.given = self.runs + 1, [np.asarray(r) for r in results[: len(self.outputs)]]
        return self.results()

    def results(self):
        return self.given


def parameters_of(roots):
    from neoflow.expr.tensor import topological

    return [t for t in topological(roots) if isinstance(t, nf.Parameter)]


class InterpretedTrainer(Trainer):
    compile = Interpreted


class Softmax:
    """Logistic regression of images [B, 1, 4, 4] in 3 classes, its data linearly separable."""

    batch = 6

    def __init__(self):
        self.x = nf.placeholder((self.batch, 1, 4, 4), name="x")
        self.labels = nf.placeholder((self.batch,), "int64", name="labels")
        start = np.random.default_rng(1).normal(size=(3, 16)).astype(np.float32) * 0.1
        self.w, self.b = nf.parameter((3, 16), name="w", init=start), nf.parameter((3,), name="b")
        flat = nf.reshape(self.x, (self.batch, 16))
        self.scores = nf.expr("s[n,c] = sum(x[n,i] * w[c,i])", x=flat, w=self.w) + self.b
        self.loss = nf.nn.functional.cross_entropy(self.scores, self.labels)
        self.hit = nf.cast(nf.equal(nf.argmax(self.scores, axis=-1), self.labels), "float32")
        self.inputs, self.parameters = [self.x, self.labels], [self.w, self.b]

    def trainer(self, kind=InterpretedTrainer, **options):
        options = {"metrics": {"accuracy": self.hit}, "progress": False, "optimizer": nf.optim.Adam(lr=0.05), **options}
        return kind(self.loss, self.parameters, inputs=self.inputs, **options)


def dataset(count=40):
    rng = np.random.default_rng(3)
    images = rng.random((count, 1, 4, 4), np.float32)
    labels = images.reshape(count, 16)[:, :3].argmax(1).astype(np.int64)
    return Dataset(images, labels, 3)


def batches(seed=0):
    return Batches(dataset(), Softmax.batch, seed=seed)

"""A small network in which every template of a GPU occurs: convolution, embedding, capsule votes, softmax."""

import numpy as np

import neoflow as nf
from neoflow.nn import functional as F

BATCH, WORDS, SIDE, CLASSES = 4, 11, 6, 5
SHAPES = {"table": (WORDS, 4), "filters": (3, 2, 3, 3), "poses": (CLASSES, 4, 3, 4), "scale": (CLASSES, 4)}


class Capsules:
    """Images [B, 2, 6, 6] and three words each, in five classes; `loss`, `scores`, `right`, a trainer of them."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        x = nf.placeholder((BATCH, 2, SIDE, SIDE), name="x")
        words = nf.placeholder((BATCH, 3), "int64", name="words")
        labels = nf.placeholder((BATCH,), "int64", name="labels")
        values = {n: (rng.normal(size=s) * 0.5).astype(np.float32) for n, s in SHAPES.items()}
        table, filters, poses, scale = (nf.parameter(s, name=n, init=values[n]) for n, s in SHAPES.items())
        seen = nf.relu(nf.expr("h[b,o,y,u] = sum(x[b,c,y+i,u+j] * w[o,c,i,j])", x=x, w=filters))
        said = F.embedding(table, words)
        parts = nf.reshape(seen, (BATCH, 4, SIDE - 2, 3)) + nf.reshape(nf.sum(said, axis=1), (BATCH, 1, 4, 1))
        votes = nf.expr("v[b,k,n,d] = sum(a[b,n,y,m] * p[k,n,m,d])", a=parts, p=poses)
        shares = F.softmax(votes, axis=1)
        self.scores = nf.sum(shares * votes * nf.reshape(scale, (1, CLASSES, 4, 1)), axis=(2, 3))
        self.loss = F.cross_entropy(self.scores, labels)
        self.right = nf.cast(nf.equal(nf.argmax(self.scores, axis=-1), labels), "float32")
        self.inputs, self.parameters = [x, words, labels], [table, filters, poses, scale]

    def trainer(self, target="cpu", **options):
        options = {"optimizer": nf.optim.Adam(lr=0.02), "metrics": {"right": self.right}, "progress": False, **options}
        return nf.Trainer(self.loss, self.parameters, inputs=self.inputs, target=target, **options)

    def values(self):
        return {p.name: nf.get_value(p) for p in self.parameters}


def batches(count=4, seed=1):
    """Batches whose labels follow from the first word and the image."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        x = rng.normal(size=(BATCH, 2, SIDE, SIDE)).astype(np.float32)
        words = rng.integers(0, WORDS, (BATCH, 3))
        found.append([x, words, (words[:, 0] % CLASSES).astype(np.int64)])
    return found

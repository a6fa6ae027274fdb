"""Models that PyTorch exports: the values of onnxruntime, and a training step of PyTorch's."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

import neoflow as nf  # noqa: E402

pytestmark = [pytest.mark.tvm, pytest.mark.torch, pytest.mark.onnx, pytest.mark.slow]


class Residual(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.inner = torch.nn.Sequential(
            torch.nn.Conv2d(channels, channels, 3, padding=1, groups=2),
            torch.nn.BatchNorm2d(channels),
            torch.nn.Hardswish(),
            torch.nn.Conv2d(channels, channels, 1),
        )

    def forward(self, x):
        return torch.relu(x + self.inner(x))


def vision():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        Residual(8), torch.nn.AvgPool2d(2, ceil_mode=True), torch.nn.Upsample(scale_factor=2, mode="nearest"),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 5),
    )  # fmt: skip


class Transformer(torch.nn.Module):
    """Two layers of attention over words, causal, shapes taken from the input as exporters see them."""

    def __init__(self, words=17, width=16, heads=4):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(words, width), torch.nn.Parameter(torch.randn(32, width) * 0.1)
        self.heads = heads
        parts = [
            (torch.nn.LayerNorm(width), torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)) for _ in "ab"
        ]
        self.layers = torch.nn.ModuleList([torch.nn.ModuleList(p) for p in parts])
        self.norm, self.out = torch.nn.LayerNorm(width), torch.nn.Linear(width, words)

    def forward(self, ids):
        b, t = ids.shape
        x = self.words(ids) + self.places[:t]
        mask = torch.triu(torch.full((t, t), -1e9), 1)
        for norm, qkv, out in self.layers:
            q, k, v = qkv(norm(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-1, -2) / k.shape[-1] ** 0.5 + mask
            x = x + out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1))
            x = x + torch.nn.functional.gelu(x)
        return self.out(self.norm(x))


def given(kind):
    torch.manual_seed(0)
    if kind == "vision":
        return vision(), torch.randn(4, 3, 32, 32)
    return Transformer(), torch.randint(0, 17, (3, 7))


@pytest.mark.parametrize("kind", ["vision", "transformer"])
def test_it_runs_as_onnxruntime_and_trains_as_pytorch(kind, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    net, x = given(kind)
    net.eval()
    with torch.no_grad():
        for p in net.parameters():  # the exporter makes one initializer of those that are equal
            p += 0.05 * torch.randn(p.shape)
    path = str(tmp_path / "net.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, (x,), path, dynamo=False, input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "batch"}},
            do_constant_folding=False,
            training=torch.onnx.TrainingMode.PRESERVE,  # else batch norm goes into convolutions
        )  # fmt: skip
    m = nf.onnx.load(path, {"batch": x.shape[0]})
    (expected,) = ort.InferenceSession(path).run(None, {"x": x.numpy()})
    np.testing.assert_allclose(m(x.numpy())[0], expected, rtol=1e-3, atol=1e-4)
    nf.onnx.save(tmp_path / "again.onnx", m)
    (again,) = ort.InferenceSession(str(tmp_path / "again.onnx")).run(None, {"x": x.numpy()})
    np.testing.assert_allclose(again, expected, rtol=1e-3, atol=1e-4)

    named = {p.name: p for p in m.parameters()}
    theirs = dict(net.named_parameters())
    assert set(named) <= set(theirs) | {n for n in named if "::" in n}
    loss = nf.mean(m.outputs[0] * m.outputs[0])
    wanted = list(named.values())
    step = nf.compile(
        [loss],
        inputs=list(m.inputs),
        updates={p: p - 0.1 * d for p, d in zip(wanted, nf.grad(loss, wanted), strict=True)},
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        their_loss = net(x).square().mean()
        their_loss.backward()
        optimizer.step()
        np.testing.assert_allclose(step(x.numpy())[0], their_loss.item(), rtol=1e-3)
    np.testing.assert_allclose(m(x.numpy())[0], net(x).detach().numpy(), rtol=1e-3, atol=1e-3)
    same = [n for n in named if n in theirs]
    assert len(same) > 5
    for n in same:
        np.testing.assert_allclose(nf.get_value(named[n]), theirs[n].detach().numpy(), rtol=1e-3, atol=1e-3)

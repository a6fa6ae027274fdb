"""A small network of PyTorch on the digits with a capsule convolution in the middle, PyTorch's optimizer and loader:
with the layer in neoflow its losses are those with the layer in PyTorch."""

import pytest

torch = pytest.importorskip("torch")

from benchmarks.torch_operator import capsules_einsum  # noqa: E402
from neoflow.data import load_digits  # noqa: E402
from tests.interop.examples import capsules  # noqa: E402

pytestmark = [pytest.mark.tvm, pytest.mark.torch]


class Net(torch.nn.Module):
    """A convolution, capsules of 2 x 2 matrices, a linear layer."""

    def __init__(self, layer):
        super().__init__()
        torch.manual_seed(0)
        self.layer = layer
        self.conv = torch.nn.Conv2d(1, 16, 3)
        self.w = torch.nn.Parameter(0.2 * torch.randn(4, 4, 3, 3, 2, 2))
        self.linear = torch.nn.Linear(64, 10)

    def forward(self, x):
        y = torch.relu(self.conv(x)).unflatten(1, (4, 2, 2)).permute(0, 1, 4, 5, 2, 3)
        return self.linear(torch.tanh(self.layer(y, self.w, 2)).flatten(1))


def losses(layer, batches):
    """Of each step of an epoch."""
    net = Net(layer)
    digits = load_digits(size=8).train
    data = torch.utils.data.TensorDataset(torch.from_numpy(digits.images), torch.from_numpy(digits.labels))
    generator = torch.Generator().manual_seed(0)
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True, drop_last=True, generator=generator)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    found = []
    for _, (images, labels) in zip(range(batches), loader, strict=False):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.slow
def test_losses_are_equal():
    batches = 40
    mine, theirs = losses(capsules, batches), losses(capsules_einsum, batches)
    assert mine == pytest.approx(theirs, rel=1e-3)
    assert sum(mine[-5:]) < 0.7 * sum(mine[:5])

"""What a contender runs, by its kind; on a GPU, peers as they are set up to compute the same there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from neoflow.contest.sides import Jax, Neoflow, Peer, Torch, TorchCompile
from neoflow.errors import ConfigError
from neoflow.nn import Model

DEVICE = "cuda"
"""Of PyTorch, where networks are made."""


class TorchOnGpu(Torch):
    """Eager, in float32 without TF32. A step copies what it is fed from the host, as neoflow's does."""

    tries_algorithms = False

    def place(self) -> AbstractContextManager[Any]:
        import torch

        if not torch.cuda.is_available():
            raise ConfigError(f"PyTorch {torch.__version__} reaches no GPU here: install one that is built for CUDA")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = self.tries_algorithms
        return torch.device(DEVICE)

    def call(self) -> Any:
        import torch

        found = super().call()
        torch.cuda.synchronize()
        return found


class TorchExpertOnGpu(TorchOnGpu):
    """The same with the fastest of cuDNN's algorithms."""

    tries_algorithms = True


class TorchCompileOnGpu(TorchCompile, TorchExpertOnGpu):
    """Compiled, and replayed as CUDA graphs."""

    options: ClassVar[Mapping[str, str]] = {"mode": "reduce-overhead"}


class JaxOnGpu(Jax):
    """In float32 without TF32; fed from the host, as the others are."""

    def place(self) -> AbstractContextManager[Any]:
        import jax

        try:
            device = jax.devices("gpu")[0]
        except (RuntimeError, IndexError):
            raise ConfigError(f"JAX {jax.__version__} reaches no GPU here: pip install 'jax[cuda12]'") from None
        jax.config.update("jax_default_matmul_precision", "highest")
        return jax.default_device(device)

    def arrays(self, model: Model) -> tuple[Any, Any]:
        return model.example()

    def call(self) -> Any:
        import jax

        return jax.block_until_ready(super().call())


KINDS: dict[str, type[Neoflow] | type[Peer]] = {
    "neoflow": Neoflow,
    "torch": Torch,
    "torch.compile": TorchCompile,
    "jax": Jax,
    "torch on a GPU": TorchOnGpu,
    "torch expert on a GPU": TorchExpertOnGpu,
    "torch.compile on a GPU": TorchCompileOnGpu,
    "jax on a GPU": JaxOnGpu,
}
"""By a contender's kind."""

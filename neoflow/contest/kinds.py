"""What a contender runs, by its kind; on a GPU, peers as they are set up to compute the same there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from neoflow.contest.sides import Jax, Neoflow, Peer, Torch, TorchCompile
from neoflow.errors import ConfigError
from neoflow.nn import Model

DEVICE = "cuda"
"""Of PyTorch, where networks are made."""
WARM = 3
"""Steps before any that is timed: torch.compile records its CUDA graphs in the second, cuDNN tries its algorithms."""
CUDA_GRAPHS = "reduce-overhead"
"""torch.compile's name for replaying what it compiled as CUDA graphs."""


def set_torch(tries_algorithms: bool, tf32: bool = False) -> None:
    """Have PyTorch compute in TF32 or in float32 alone, by the fastest of cuDNN's algorithms or by what it guesses.

    By the older names of these settings: torch.compile reads them, and refuses a mixture of both.
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = tries_algorithms


def compiled(function: Callable[..., Any], fixed: Iterable[Any], mode: str) -> Callable[..., Any]:
    """What torch.compile makes of a function of tensors. fixed: tensors that stay where they are, which a CUDA graph
    need not copy first."""
    import torch

    for tensor in fixed:
        torch._dynamo.mark_static_address(tensor)
    return torch.compile(function, mode=mode)


class TorchOnGpu(Torch):
    """Eager, in float32 without TF32. A step copies what it is fed from the host, as neoflow's does."""

    tries_algorithms, warm = False, WARM

    def place(self) -> AbstractContextManager[Any]:
        import torch

        if not torch.cuda.is_available():
            raise ConfigError(f"PyTorch {torch.__version__} reaches no GPU here: install one that is built for CUDA")
        set_torch(self.tries_algorithms)
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

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return compiled(function, self.peer.tensors.values(), CUDA_GRAPHS)

    def call(self) -> Any:
        import torch

        torch.compiler.cudagraph_mark_step_begin()  # the graph of the step before is done with its memory
        return super().call()


class JaxOnGpu(Jax):
    """In float32 without TF32; fed from the host, as the others are."""

    warm = WARM

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

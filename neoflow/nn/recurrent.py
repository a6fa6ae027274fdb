"""One step of recurrent networks: x [B, I] and the state [B, H] to the next state [B, H]."""

from __future__ import annotations

from neoflow.expr import dsl
from neoflow.expr.tensor import Tensor
from neoflow.nn.linear import linear
from neoflow.nn.tools import describe, expect

__all__ = ["gru_cell", "lstm_cell", "lstm_gates"]


def lstm_cell(
    x: Tensor,
    h: Tensor,
    c: Tensor,
    wx: Tensor,
    wh: Tensor,
    bx: Tensor | None = None,
    bh: Tensor | None = None,
    gates: str = "ifgo",
) -> tuple[Tensor, Tensor]:
    """c' = sigma(f) c + sigma(i) tanh(g),  h' = sigma(o) tanh(c');  returns (h', c').

    wx [4H, I], wh [4H, H], bx and bh [4H]: blocks of H rows for the gates, in the order `gates`.
    Source: Hochreiter and Schmidhuber, 1997; Gers et al., 2000.
    """
    expect(sorted(gates) == list("fgio"), f"gates is an order of i, f, g and o, not {gates!r}")
    expect(
        h.rank == wx.rank == wh.rank == 2,
        f"lstm_cell takes h[B, H] and weights [4H, I], [4H, H], not {describe(h, wx, wh)}",
    )
    expect(wx.shape[0] == wh.shape[0] == 4 * h.shape[1], f"lstm_cell: 4H rows of weights, not {describe(h, wx, wh)}")
    u, v, size = linear(x, wx, bx), linear(h, wh, bh), h.shape[1]
    return lstm_gates(u + v, c, {gate: size * n for n, gate in enumerate(gates)})


def lstm_gates(pre: Tensor, c: Tensor, at: dict[str, int]) -> tuple[Tensor, Tensor]:
    """(h', c') from the sums before the gates, pre [B, 4H], where gate `g` starts at column at["g"]; c [B, H]."""
    expect(set(at) == set("ifgo"), f"lstm_gates takes the columns of the gates i, f, g and o, not of {', '.join(at)}")
    new_c = dsl.compute(
        c.shape,
        lambda b, j: (
            dsl.sigmoid(pre[b, j + at["f"]]) * c[b, j]
            + dsl.sigmoid(pre[b, j + at["i"]]) * dsl.tanh(pre[b, j + at["g"]])
        ),
        "c",
    )
    new_h = dsl.compute(c.shape, lambda b, j: dsl.sigmoid(pre[b, j + at["o"]]) * dsl.tanh(new_c[b, j]), "h")
    return new_h, new_c


def gru_cell(
    x: Tensor, h: Tensor, wx: Tensor, wh: Tensor, bx: Tensor | None = None, bh: Tensor | None = None
) -> Tensor:
    """h' = (1 - z) n + z h,  r = sigma(u_r + v_r),  z = sigma(u_z + v_z),  n = tanh(u_n + r v_n);  u = wx x, v = wh h.

    wx [3H, I], wh [3H, H], bx and bh [3H]: blocks of H rows in the order r, z, n. Source: Cho et al., 2014.
    """
    expect(
        h.rank == wx.rank == wh.rank == 2,
        f"gru_cell takes h[B, H] and weights [3H, I], [3H, H], not {describe(h, wx, wh)}",
    )
    expect(wx.shape[0] == wh.shape[0] == 3 * h.shape[1], f"gru_cell: 3H rows of weights, not {describe(h, wx, wh)}")
    u, v, size = linear(x, wx, bx), linear(h, wh, bh), h.shape[1]

    def body(b, j):
        r = dsl.sigmoid(u[b, j] + v[b, j])
        z = dsl.sigmoid(u[b, j + size] + v[b, j + size])
        n = dsl.tanh(u[b, j + 2 * size] + r * v[b, j + 2 * size])
        return (1.0 - z) * n + z * h[b, j]

    return dsl.compute(h.shape, body, "h")

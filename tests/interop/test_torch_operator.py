"""Operators beside everything that PyTorch does with tensors: views, modes, copies, processes, threads."""

import copy
import io
import logging
import pickle
import subprocess
import sys
import textwrap
import threading

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

import neoflow as nf  # noqa: E402
from neoflow.errors import ArgumentError, ExpressionError, RuntimeFault  # noqa: E402
from neoflow.interop.torch.tensors import runner  # noqa: E402
from tests.emulator.driver import emulated  # noqa: E402
from tests.interop.examples import EXAMPLES, lookup, tropical  # noqa: E402
from tests.runtime import foreign  # noqa: E402

pytestmark = [pytest.mark.tvm, pytest.mark.torch]


@nf.torch.operator
def scaled(x, w, times: float = 2.0):
    """times * x * w, and no more, so that tests compile quickly."""
    return x * w * times


@nf.torch.operator
def rows(x, w):
    """y[b] = sum(x[b,i] * w[i])"""
    return nf.expr("y[b] = sum(x[b,i] * w[i])", x=x, w=w)


@nf.torch.operator
def both(x) -> tuple[nf.Tensor, nf.Tensor]:
    """Its argument itself, and a sum over it."""
    return x, nf.sum(x)


class Net(torch.nn.Module):
    """A module that uses an operator."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.arange(4.0))
        self.f = rows

    def forward(self, x):
        return self.f(x, self.w)


def drawn(*shape, requires_grad=False):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_(requires_grad)


class TestTensors:
    def test_dense_aligned_tensors_are_not_copied(self, monkeypatch):
        x, w = drawn(3, 4), drawn(4)
        monkeypatch.setattr(torch.Tensor, "clone", lambda *a, **k: pytest.fail("a copy"))
        torch.testing.assert_close(rows(x, w), x @ w)

    @pytest.mark.parametrize(
        "view",
        [
            lambda t: t.t(),
            lambda t: t[:, ::2],
            lambda t: t[1:, 1:],
            lambda t: t[:1].expand(5, 4),
            lambda t: t.flip(0),
            lambda t: torch.view_as_real(torch.complex(t, t)).select(2, 1),
        ],
        ids=["transposed", "strided", "misaligned", "expanded", "flipped", "inner"],
    )
    def test_views_are_copied_silently(self, view):
        base = drawn(4, 4)
        x = view(base)
        w = drawn(x.shape[1])
        torch.testing.assert_close(rows(x, w), x @ w)

    def test_the_same_tensor_twice(self):
        x = drawn(3, 4, requires_grad=True)
        y = scaled(x, x)
        torch.testing.assert_close(y, 2 * x * x)
        y.sum().backward()
        torch.testing.assert_close(x.grad, 4 * x.detach())

    def test_results_are_new_tensors(self):
        x = drawn(3, 4, requires_grad=True)
        same, total = both(x)
        assert same.data_ptr() != x.data_ptr()
        (3 * same.sum() + total).backward()
        torch.testing.assert_close(x.grad, torch.full((3, 4), 4.0))

    def test_a_cotangent_may_be_missing_or_expanded(self):
        x = drawn(3, 4, requires_grad=True)
        both(x)[1].backward()
        torch.testing.assert_close(x.grad, torch.ones(3, 4))

    def test_a_tensor_without_elements(self):
        x, w = drawn(0, 4).requires_grad_(), drawn(4, requires_grad=True)
        y = rows(x, w)
        assert y.shape == (0,) and y.dtype == torch.float32
        y.sum().backward()
        assert x.grad.shape == (0, 4) and w.grad.tolist() == [0] * 4

    def test_a_result_that_nothing_says(self):
        with pytest.raises(
            RuntimeFault, match=r"rows: x is float32\[3, 0\], and its result y is float32\[3\]: nothing"
        ):
            rows(drawn(3, 0), drawn(0))

    def test_sizes_that_no_program_has_beside_nothing(self):
        with pytest.raises(RuntimeFault, match="a tensor has no elements, and of 64 in place of each 0 there is no"):
            rows(drawn(0, 4), drawn(5))

    def test_any_mixture_of_gradients(self):
        for x_needs, w_needs in ((True, False), (False, True), (True, True), (False, False)):
            x, w = drawn(3, 4, requires_grad=x_needs), drawn(4, requires_grad=w_needs)
            y = rows(x, w)
            assert y.requires_grad == (x_needs or w_needs)
            if y.requires_grad:
                y.sum().backward()
            assert (x.grad is not None, w.grad is not None) == (x_needs, w_needs)

    def test_nothing_is_kept_that_no_gradient_reads(self):
        x, w = drawn(3, 4, requires_grad=True), drawn(4)
        (kept,) = rows(x, w).grad_fn.saved_tensors
        assert kept is w
        assert len(tropical(drawn(2, 3, 9, requires_grad=True), drawn(4, 3, 3)).grad_fn.saved_tensors) == 3


class TestModes:
    def test_no_grad_and_inference_mode(self):
        x, w = drawn(3, 4, requires_grad=True), drawn(4)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                y = rows(x, w)
            assert not y.requires_grad
            torch.testing.assert_close(y, (x @ w).detach())
        assert rows(x, w).requires_grad

    def test_autocast(self):
        x, w = drawn(3, 4), drawn(4, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            y = rows((x[:, :, None] @ torch.ones(1, 1)).squeeze(-1), w)
        assert y.dtype == torch.float32
        y.sum().backward()
        assert w.grad.dtype == torch.float32

    def test_functions_of_torch_under_a_batch(self):
        x, w = drawn(5, 3, 4), drawn(4)
        torch.testing.assert_close(torch.func.vmap(rows, (0, None))(x, w), x @ w)
        gradients = torch.func.vmap(torch.func.grad(lambda x, w: rows(x, w).sum(), 1), (0, None))(x, w)
        torch.testing.assert_close(gradients, x.sum(1))


class TestCompilations:
    def test_each_has_a_reason_in_the_log(self, caplog):
        @nf.torch.operator
        def logged(x, times: int = 2):
            return x * times

        with caplog.at_level(logging.INFO, "neoflow"):
            logged(drawn(3))
            logged(drawn(3))
            logged(drawn(5))
            logged(drawn(5), 3)
            logged(drawn(5).double(), 3)
        text = caplog.text
        assert text.count("operator logged: another program, since") == 4
        assert "since it is called for the first time" in text
        assert "since x is float32[5], not float32[3]" in text
        assert "since times is 3, not 2" in text
        assert "since x is float64[5], not float32[5]" in text
        assert "operator logged: compiled itself for cpu in" in text

    def test_their_number_has_a_bound(self):
        @nf.torch.operator(limit=2)
        def bounded(x):
            return x + 1

        bounded(drawn(3))
        bounded(drawn(4))
        bounded(drawn(3))
        with pytest.raises(
            RuntimeFault, match=r"bounded was compiled for 2 shapes, and now x is float32\[5\], not .*pad"
        ):
            bounded(drawn(5))

    def test_a_name_is_given_once(self):
        first, second = (nf.torch.operator(lambda x: x, name="the same") for _ in range(2))
        assert first.signature.name == "the_same" and second.signature.name == "the_same_2"
        assert "the_same_2(Tensor x)" in repr(second)


class TestRefusals:
    def test_arguments(self):
        x = drawn(3, 4)
        with pytest.raises(ArgumentError, match="operator rows misses its argument w"):
            rows(x)
        with pytest.raises(ArgumentError, match="operator rows takes 2 arguments, got 3"):
            rows(x, x, x)
        with pytest.raises(ArgumentError, match="operator rows has no argument x, or it is there twice"):
            rows(x, drawn(4), x=x)
        torch.testing.assert_close(scaled(w=x, x=x, times=1.0), x * x)

    def test_dtypes_and_devices(self):
        with pytest.raises(RuntimeFault, match=r"argument x is torch.complex64; there are float64, .*: convert it"):
            rows(drawn(3, 4).to(torch.complex64), drawn(4))
        with pytest.raises(ArgumentError, match="operator rows: tensors on cpu and meta"):
            rows.op(drawn(3, 4), drawn(4).to("meta"))

        with pytest.raises(RuntimeFault, match="operator rows: tensors on xpu; there are cpu and cuda"):
            runner(rows.case((drawn(3, 4), drawn(4))), "xpu", None, None)

        @nf.torch.operator(target="cuda")
        def elsewhere(x):
            return x

        with pytest.raises(RuntimeFault, match="operator elsewhere is for target 'cuda', its tensors are on cpu"):
            elsewhere(drawn(3))

    def test_signatures(self):
        with pytest.raises(ArgumentError, match=r"\*tensors stands for any number of arguments; name each of them"):
            nf.torch.operator(lambda *tensors: tensors[0])
        with pytest.raises(ArgumentError, match="takes no tensor: nothing says what it computes on"):
            nf.torch.operator(lambda n=1: nf.ones((n,)))

        def unclear(x) -> tuple:
            return x, x

        with pytest.raises(
            ArgumentError, match=r"operator unclear.* returns several tensors: say how many by outputs="
        ):
            nf.torch.operator(unclear)

        def optional(x, n: int | None = None):
            return x

        with pytest.raises(ArgumentError, match="n is int or None; only tensors may be None"):
            nf.torch.operator(optional)

    def test_results(self):
        with pytest.raises(
            ArgumentError, match=r"operator lambda.* returned 2 tensors, not 1: annotate what it returns"
        ):
            nf.torch.operator(lambda x: (x, x))(drawn(3))
        with pytest.raises(ArgumentError, match="returned str, which is no tensor of neoflow"):
            nf.torch.operator(lambda x: "x")(drawn(3))
        hidden = nf.parameter((3,), name="hidden")
        with pytest.raises(ExpressionError, match="reads the parameter hidden, which is none of its arguments"):
            nf.torch.operator(lambda x: x * hidden)(drawn(3))

    def test_an_index_outside_its_table(self):
        with pytest.raises(RuntimeFault, match="9"):
            lookup(drawn(4, 3), torch.tensor([1, 9, 0, 0, 0]))
        torch.testing.assert_close(lookup(drawn(4, 3), torch.tensor([1, 0, 0])).shape, torch.Size((3, 3)))


class TestCopies:
    def test_deepcopy_and_pickle_of_a_module(self):
        net, x = Net(), drawn(3, 4)
        for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            assert other.f is rows and other.w is not net.w
            torch.testing.assert_close(other(x), net(x))
        kept = io.BytesIO()
        torch.save(net, kept)
        kept.seek(0)
        torch.testing.assert_close(torch.load(kept, weights_only=False)(x), net(x))
        assert copy.copy(rows) is rows

    def test_an_operator_that_nobody_finds_is_not_pickled(self):
        with pytest.raises(ArgumentError, match=r"is no name of module .*: define it at the top of one"):
            pickle.dumps(nf.torch.operator(lambda x: x))


class TestThreads:
    def test_several_at_once(self):
        x, w = [drawn(50 + n % 2, 40) for n in range(8)], drawn(40)
        expected, wrong = [v @ w for v in x], []

        def work(n):
            for _ in range(20):
                v = x[n].clone().requires_grad_()
                y = rows(v, w)
                y.sum().backward()
                if not torch.allclose(y, expected[n], atol=1e-4) or not torch.equal(v.grad, w.expand_as(v)):
                    wrong.append(n)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong


class Items(torch.utils.data.Dataset):
    """What an operator makes of its items, in the process of a worker."""

    def __len__(self):
        return 6

    def __getitem__(self, n):
        return rows(torch.full((2, 4), float(n)), torch.ones(4))


class TestProcesses:
    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of fork beside threads
    @pytest.mark.filterwarnings("ignore:os.fork")  # of JAX, where another test has imported it
    def test_workers_of_a_data_loader(self):
        rows(drawn(2, 4), drawn(4))  # with the team's threads, which a child of fork has not
        loader = torch.utils.data.DataLoader(Items(), batch_size=2, num_workers=2, multiprocessing_context="fork")
        assert [b[:, 0].tolist() for b in loader] == [[0, 4], [8, 12], [16, 20]]

    @pytest.mark.slow
    def test_two_processes_with_gloo(self, tmp_path):
        program = f"""
            import sys, torch, neoflow as nf
            import torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel
            rank = int(sys.argv[1])
            dist.init_process_group("gloo", init_method="file://{tmp_path}/meet", rank=rank, world_size=2)

            @nf.torch.operator
            def rows(x, w):
                return nf.expr("y[b,o] = tanh(sum(x[b,i] * w[o,i]))", x=x, w=w)

            class Net(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    torch.manual_seed(rank)
                    self.w = torch.nn.Parameter(torch.randn(3, 4))

                def forward(self, x):
                    return rows(x, self.w)

            net = DistributedDataParallel(Net())
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            every = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
            for _ in range(3):
                optimizer.zero_grad()
                net(every[2 * rank : 2 * rank + 2]).sum().backward()
                optimizer.step()
            w, other = net.module.w.detach(), [torch.zeros(3, 4), torch.zeros(3, 4)]
            dist.all_gather(other, w)
            torch.manual_seed(0)
            alone = torch.randn(3, 4, requires_grad=True)
            for _ in range(3):
                (g,) = torch.autograd.grad(torch.tanh(every @ alone.T).sum() / 2, [alone])
                alone = (alone - 0.1 * g).detach().requires_grad_()
            print(torch.equal(*other), torch.allclose(w, alone, atol=1e-5))
            dist.destroy_process_group()
        """
        command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
        running = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(2)]
        assert [p.communicate(timeout=300)[0].split() for p in running] == [["True", "True"]] * 2


def test_neoflow_does_not_import_pytorch_before_it_is_asked_for():
    program = (
        "import sys, neoflow as nf; dir(nf); print('torch' in sys.modules, 'torch' in dir(nf), 'torch' in nf.__all__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]


def test_without_pytorch_it_says_what_to_install():
    program = "import sys; sys.modules['torch'] = None; import neoflow as nf; nf.torch"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (
        done.returncode
        and "nf.torch needs PyTorch, which is not installed: pip install 'neoflow[torch]'" in done.stderr
    )


def test_examples_have_names_of_their_own():
    assert len({id(e.operator.op) for e in EXAMPLES.values()}) == len(EXAMPLES) - 1  # of the gate there are two


class TestGpu:
    """The path of tensors on a GPU, as far as a PyTorch without one goes: emulated memory in place of its tensors."""

    def test_a_case_runs_there(self, monkeypatch):
        class Lent(foreign.Tensor):
            def detach(self):
                return self

            contiguous = detach

        gpu = emulated(monkeypatch)
        monkeypatch.setattr(torch, "from_dlpack", lambda y: y)
        case = scaled.case((drawn(3, 4), drawn(3, 4), 2.0))
        run = runner(case, "cuda", None, None)
        x, w = drawn(3, 4).numpy(), drawn(3, 4).numpy() + 1
        (y,) = run([Lent(x), Lent(w)])
        assert y.shape == (3, 4) and gpu is not None
        np.testing.assert_allclose(np.asarray(y), 2 * x * w, rtol=1e-6)

"""PyTorch's door: `torch.compile(model, backend="eqsat")` and `eqsat.optimize(exported)`."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import eqsat
from eqsat.model.diag import EqsatError, EqsatWarning

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from eqsat.api import dynamo  # noqa: E402  imports what was looked for

OPTIONS = {"target": "reference", "check": "never", "time_limit": 20.0}


@pytest.fixture(autouse=True)
def _afresh() -> Any:
    torch._dynamo.reset()
    dynamo._WARNED.clear()
    torch.manual_seed(0)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.norm.running_var.uniform_(0.5, 2)
        self.norm.running_mean.normal_()

    def forward(self, x: Any) -> Any:
        return torch.relu(self.norm(self.conv(x))).transpose(1, 3)


def searched(model: Any, **options: Any) -> tuple[Any, list[Any]]:
    """The compiled model and the runs of its graphs."""
    runs: list[Any] = []
    given = OPTIONS | {"on_answer": runs.append} | options
    return torch.compile(model, backend=dynamo.compile_graph, options=given), runs


def test_a_model_is_called_as_before() -> None:
    """Types, strides and names are torch's; weights that change are packed again."""
    model, x = Block().eval(), torch.randn(2, 3, 8, 8)
    compiled, runs = searched(model)
    with torch.no_grad():
        for _ in range(2):
            result, wanted = compiled(x), model(x)
            torch.testing.assert_close(result, wanted)
            assert result.stride() == wanted.stride()
            model.conv.weight.mul_(2)  # in place: seen by the next call
        model.conv.weight.data = torch.randn(4, 3, 3, 3)
        torch.testing.assert_close(compiled(x), model(x))
    assert len(runs) == 1
    assert {"conv_weight", "norm_running_var"} <= {
        runs[0].program.leaf(i).name for i in runs[0].program.weights
    }


def test_its_name_is_enough() -> None:
    """`backend="eqsat"` is an entry point of the installed package."""
    runs: list[Any] = []
    model, x = Block().eval(), torch.randn(1, 3, 4, 4)
    compiled = torch.compile(model, backend="eqsat", options=OPTIONS | {"on_answer": runs.append})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    assert len(runs) == 1


def test_arguments_that_are_written_to_and_views_of_them() -> None:
    def step(state: Any, ids: Any) -> Any:
        state.add_(1.0)
        return state[0], ids.argmax(), state * 2

    compiled, runs = searched(step)
    with torch.no_grad():
        ours, theirs = torch.zeros(2, 3), torch.zeros(2, 3)
        ids = torch.tensor([3, 9, 4])
        view, at, twice = compiled(ours, ids)
        wanted = step(theirs, ids)
    assert len(runs) == 1
    torch.testing.assert_close((ours, view, at, twice), (theirs, *wanted))
    assert at.dtype == torch.int64 and view.data_ptr() == ours.data_ptr()


def test_large_integers_run_in_torch() -> None:
    compiled, _ = searched(lambda ids: ids + 1)
    with torch.no_grad():
        assert compiled(torch.tensor([1, 2])).tolist() == [2, 3]
        assert compiled(torch.tensor([2**40, 2])).tolist() == [2**40 + 1, 3]


def complained(function: Any, *args: Any, **options: Any) -> str:
    """What a call warns of; its results are those of the function."""
    compiled, runs = searched(function, **options)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.testing.assert_close(compiled(*args), function(*args))
    assert not runs
    (told,) = [str(w.message) for w in seen if isinstance(w.message, EqsatWarning)]
    return told


def test_what_runs_in_torch_says_why() -> None:
    x = torch.ones(4)
    told = complained(torch.nn.Linear(4, 4), x)
    assert "warning[E523]: a graph runs in torch: derivatives" in told
    with torch.no_grad():
        assert "f64" in complained(lambda x: x * 2, x.double()).replace("float64", "f64")
        assert "(E396)" in complained(lambda x: torch.special.bessel_j0(x) + 1, x)
    with pytest.raises(EqsatError, match=r"E400.*no option `time_limt`"):
        dynamo.compile_graph(None, [], options={"time_limt": 1})
    with pytest.raises(EqsatError, match=r"E400.*no mode `max-autotune`"):
        dynamo.compile_graph(None, [], mode="max-autotune")


def test_constants_that_are_written_into_a_tensor() -> None:
    """As masks of shifted windows are made: each number is a tensor of the graph's own."""

    def shifted(x: Any) -> Any:
        mask = x.new_zeros((4, 8))
        mask[0:2, 0:5] = 1
        mask[2:] = 2
        return x + mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)

    compiled, runs = searched(shifted)
    x = torch.randn(4, 8)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", EqsatWarning)
        torch.testing.assert_close(compiled(x), shifted(x))
    assert len(runs) == 1


def test_sizes_that_change_are_searched_one_by_one(monkeypatch: Any) -> None:
    monkeypatch.setattr(dynamo, "MOST_SIZES", 3)
    model = torch.nn.Linear(4, 3).eval()
    compiled, runs = searched(lambda x: model(x).reshape(-1) * x.shape[0])
    with torch.no_grad():
        for rows in (2, 3, 5, 3, 2):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(compiled(x), model(x).reshape(-1) * rows)
        with pytest.warns(EqsatWarning, match=r"E523.*sizes change"):
            assert compiled(torch.randn(7, 4)).shape == (21,)
    assert len(runs) == 4  # the first size is no symbol to torch, then there are three


def test_a_graph_break_is_told() -> None:
    def cut(x: Any) -> Any:
        y = torch.relu(x) + 1
        torch._dynamo.graph_break()
        return y * 3

    compiled, runs = searched(cut)
    with (
        torch.no_grad(),
        pytest.warns(EqsatWarning, match=r"E523.*torch ends a graph here \(.*test_torch"),
    ):
        torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 6.0))
    assert len(runs) == 2


def test_an_exported_program_is_searched() -> None:
    model, x = Block().eval(), torch.randn(1, 3, 8, 8)
    run = eqsat.optimize(torch.export.export(model, (x,)), target="reference")
    (result,) = run(x.numpy())
    with torch.no_grad():
        torch.testing.assert_close(torch.tensor(result), model(x))
    assert any(n.origin.name.startswith("conv") for n in run.program.nodes)
    with pytest.raises(EqsatError, match=r"E308"):
        eqsat.optimize(model, x.numpy())

"""Arguments of `operator`, which PyTorch's and JAX's share."""

import pytest

pytest.importorskip("torch")

import neoflow as nf
from neoflow.errors import ArgumentError, ConfigError

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"function": 3}, "operator takes a function of tensors, not 3"),
        ({"function": int}, "nothing says what .* takes"),
        ({"name": ""}, "name is ''; it is a text"),
        ({"name": 3}, "name is 3; it is a text"),
        ({"outputs": 0}, "outputs is 0; it is an integer from 1 to 1048576"),
        ({"limit": True}, "limit is True; it is an integer from 1"),
        ({"target": 3}, "target is 3; it is a text, as in nf.compile, or None"),
        ({"autocast": "half"}, "autocast is 'half'; it is a dtype of PyTorch, or None"),
    ],
)
def test_wrong_arguments_are_told(options, message):
    options = {"function": lambda x: x, **options}
    with pytest.raises(ArgumentError, match=message):
        nf.torch.operator(options.pop("function"), **options)


def test_what_is_decorated_and_searched_for_is_checked_too():
    with pytest.raises(ArgumentError, match="operator takes a function of tensors, not 3"):
        nf.torch.operator(name="named")(3)
    with pytest.raises(ConfigError, match="tune is seconds"):
        nf.torch.operator(lambda x: x, tune="long")

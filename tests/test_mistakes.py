"""What a new user gets wrong, and the words that tell: each is one of neoflow's own errors, of a few lines.

A row: the call as it is written, the class of the error, what it must say. The last frame is the user's, and so are all
others.
"""

import traceback
from pathlib import Path

import numpy as np
import pytest

import neoflow as nf
from neoflow import data
from neoflow.errors import (
    ArgumentError,
    CheckpointError,
    ConfigError,
    DataError,
    ExpressionError,
    GradientError,
    GraphError,
    PackageError,
    RuntimeFault,
)

F = nf.nn.functional
x, y = nf.placeholder((4, 5), name="x"), nf.placeholder((5, 3), name="y")
v, n = nf.placeholder((5,), name="v"), nf.placeholder((4,), "int32", name="n")
ids = nf.placeholder((3,), "int64", name="ids")
image, kernel = nf.placeholder((2, 3, 8, 8), name="image"), nf.placeholder((4, 3, 3, 3), name="kernel")
cube, seed = nf.placeholder((2, 3, 5), name="cube"), nf.placeholder((), "int64", name="seed")
shifted = nf.placeholder((2, 9, 6, 6), name="shifted")
w = nf.parameter((4, 5), name="w")
k = nf.axis(5, "k")
loss = nf.mean(x * w)
a = np.zeros((4, 5), np.float32)
samples = data.Dataset(np.zeros((8, 1, 4, 4), np.float32), np.zeros(8, np.int64), 2)


def trainer(**options):
    return nf.Trainer(loss, [w], inputs=[x], progress=False, **options)


MISTAKES = {
    # tensors
    "nf.placeholder()": (ArgumentError, "placeholder() missing 1 required positional argument: 'shape'"),
    "nf.placeholder('4,5')": (ExpressionError, "a shape is one integer greater than 0 for each dimension, not '4,5'"),
    "nf.placeholder(4.0)": (ExpressionError, "for each dimension, not 4.0"),
    "nf.placeholder({4: 5})": (ExpressionError, "for each dimension, not {4: 5}"),
    "nf.placeholder((4, None))": (ExpressionError, "shape (4, None) has extent None"),
    "nf.placeholder(((4, 5),))": (ExpressionError, "has extent (4, 5)"),
    "nf.placeholder((4,), 'float')": (ExpressionError, "dtype 'float' is not one of float64, float32"),
    "nf.placeholder((4,), None)": (ExpressionError, "dtype None is not one of"),
    "nf.placeholder((4,), name=3)": (ExpressionError, "a name is a text, not 3"),
    "nf.parameter((4,), init='zeros')": (
        ExpressionError,
        "an array, or a function (shape, generator) -> array, not",
    ),
    "nf.parameter((4,), init=[1, 2, 3])": (ExpressionError, "has shape (4,), its initial value (3,)"),
    "nf.parameter((4,), init=lambda s: s)": (ExpressionError, "a function that is called with (shape, generator)"),
    "nf.axis()": (ArgumentError, "axis() missing 1 required positional argument: 'extent'"),
    "nf.axis((3, 4))": (ArgumentError, "axis: extent is (3, 4), a tuple; it takes an integer"),
    "nf.axis(3, 4)": (ExpressionError, "a name is a text, not 4"),
    "nf.compute((4,))": (ArgumentError, "compute() missing 1 required positional argument: 'body'"),
    "nf.compute((4,), x)": (
        ArgumentError,
        "compute: body is <Placeholder x: float32[4, 5]>, a Placeholder",
    ),
    "nf.compute((4,), lambda i: None)": (ExpressionError, "None of type NoneType is no expression, tensor or number"),
    "nf.compute((4,), lambda i: x[i])": (ExpressionError, "x has rank 2 (shape (4, 5)) but is read with 1 indices"),
    "nf.compute((4, 5), lambda i, j: x[i, j] + y)": (ExpressionError, "tensor y of shape (5, 3) stands where a scalar"),
    "np.asarray(x)": (ExpressionError, "x has no value while the program is written, so NumPy cannot take it"),
    "np.array([x, w])": (ExpressionError, "nf.get_value gives that of a parameter"),
    # functions
    "nf.sum()": (ArgumentError, "sum() missing 1 required positional argument: 'x'"),
    "nf.sum('text')": (ExpressionError, "'text' of type str is no expression"),
    "nf.sum(x, bogus=1)": (ArgumentError, "got an unexpected keyword argument 'bogus'"),
    "nf.sum(x, axis='rows')": (ExpressionError, "are numbers: axis=0 or axis=[0, 1], not 'rows'"),
    "nf.sum(x, axis=1.5)": (ExpressionError, "axis=0 or axis=[0, 1], not 1.5"),
    "nf.mean(x, axis=9)": (ExpressionError, "x has rank 2 (shape (4, 5)); there is no dimension 9"),
    "nf.exp(None)": (ExpressionError, "None of type NoneType is no expression"),
    "nf.maximum(x)": (ExpressionError, "maximum takes 2 argument(s), got 1"),
    "nf.maximum(x, y)": (ExpressionError, "shapes do not broadcast: x[4, 5], y[5, 3]"),
    "nf.select(x > 0, x)": (ArgumentError, "select() missing 1 required positional argument: 'other'"),
    "nf.select(x, x, x)": (ExpressionError, "select needs a condition, but `x[i, j]` is float32; compare it"),
    "nf.cast(x)": (ArgumentError, "cast() missing 1 required positional argument: 'dtype'"),
    "nf.cast(x, 'float')": (ExpressionError, "dtype 'float' is not one of"),
    "nf.concat(x)": (ExpressionError, "concat takes a list of one or more tensors"),
    "nf.concat([])": (ExpressionError, "concat takes a list of one or more tensors, not []"),
    "nf.concat([x, x], axis='a')": (ExpressionError, "concat takes one dimension number as axis, not 'a'"),
    "nf.stack([x, y])": (ExpressionError, "stack: y has shape (5, 3), x (4, 5); shapes must be equal"),
    "nf.split(x, 3)": (ExpressionError, "extent 4 of dimension 0 is no multiple of 3"),
    "nf.split(x, None)": (
        ArgumentError,
        "split: sections is None, a NoneType; it takes an integer or a list",
    ),
    "nf.reshape(x, (3, 5))": (ExpressionError, "has 20 elements and does not reshape to (3, 5)"),
    "nf.reshape(x, None)": (ArgumentError, "reshape: shape is None"),
    "nf.transpose(x, 1, 0)": (ArgumentError, "transpose() takes from 1 to 2 positional arguments but 3 were given"),
    "nf.expand_dims(x, 'a')": (ExpressionError, "expand_dims takes one dimension number as axis, not 'a'"),
    "nf.squeeze(x, 0)": (ExpressionError, "dimension 0 has extent 4, not 1"),
    "nf.broadcast_to(x, (3,))": (ExpressionError, "x of shape (4, 5) does not broadcast to (3,)"),
    "nf.flip(x, 'a')": (ExpressionError, "axis=0 or axis=[0, 1], not 'a'"),
    "nf.pad(x, (1, 2, 3))": (ExpressionError, "takes a width >= 0, a pair (before, after), or such a pair for each"),
    "nf.pad(x, 1, value='a')": (ArgumentError, "pad: value is 'a', a str; it takes a number"),
    "nf.pad(x, 10**5000)": (ArgumentError, "pad: width is an integer of 16610 bits, which is too large"),
    "nf.take(x, v)": (ExpressionError, "take is indexed by v of type float32; indices are integers"),
    "nf.take(x, 9)": (ExpressionError, "take: index 9 leaves dimension 0 of x (4, 5)"),
    "nf.one_hot(ids)": (ArgumentError, "one_hot() missing 1 required positional argument: 'depth'"),
    "nf.tril(v)": (ExpressionError, "tril takes a tensor of rank 2 or more; v has shape (5,)"),
    "nf.scatter((5,), ['k'], [k], 1.0)": (ExpressionError, "scatter goes over axes made by nf.axis, not 'k'"),
    "nf.count_ops(3)": (ArgumentError, "count_ops: tensors is 3, an int; it takes a Tensor or a list of Tensor"),
    # index notation
    "nf.expr()": (ArgumentError, "missing 1 required positional argument: 'text'"),
    "nf.expr(3)": (ExpressionError, "index notation is a text, not 3"),
    "nf.expr('y[i] = sum(x[i])', x=x)": (ExpressionError, "x has rank 2 (shape (4, 5)) but is read with 1 indices"),
    "nf.expr('y[i,j] = x[i,j]')": (ExpressionError, "unknown name `x`; bound here: none; bind it by keyword: x=..."),
    "nf.expr('ij,jk->ik', x, y)": (
        ExpressionError,
        "tensors are bound by the names they have in the text",
    ),
    "nf.expr('y[i,j] = x[i,j]', x=x, outputs='z')": (ExpressionError, "outputs is a list of names that the text"),
    "nf.expr('y[i,j] = x[i,j]', x=x, name=3)": (ExpressionError, "a name is a text, not 3"),
    # gradients and values
    "nf.grad(loss)": (ArgumentError, "grad() missing 1 required positional argument: 'wrt'"),
    "nf.grad(loss, 'w')": (ArgumentError, "grad: wrt is 'w', a str; it takes a list of Tensor"),
    "nf.grad(loss, ['w'])": (ArgumentError, "grad: wrt[0] is 'w', a str; it takes a Tensor"),
    "nf.grad(3.0, [w])": (ArgumentError, "grad: loss is 3.0, a float; it takes a Tensor"),
    "nf.grad(x, [w])": (GradientError, "grad needs a loss of one element; x has shape (4, 5)"),
    "nf.grad(loss, [v])": (GradientError, "does not depend on v through differentiable operations"),
    "nf.vjp(x, [x], a)": (GradientError, "the cotangent of x is a tensor, not a ndarray"),
    "nf.check_grad(loss, [w], {w: np.zeros(3)})": (GradientError, "w has shape (4, 5), the array fed for it (3,)"),
    "nf.evaluate(loss)": (ArgumentError, "evaluate() missing 1 required positional argument: 'feeds'"),
    "nf.evaluate(loss, [a, a])": (ArgumentError, "a list; it takes a dict of Tensor"),
    "nf.evaluate(loss, {'x': a})": (ExpressionError, "feeds has the key 'x'; its keys are tensors"),
    "nf.evaluate([loss, 3], {x: a, w: a})": (ArgumentError, "evaluate: tensors[1] is 3, an int; it takes a Tensor"),
    "nf.evaluate(loss, {x: x, w: a})": (ExpressionError, "x has no value while the program is written"),
    "nf.get_value(x * x)": (
        ArgumentError,
        "get_value: p is <Compute mul: float32[4, 5]>, a Compute",
    ),
    "nf.get_value('w')": (ArgumentError, "get_value: p is 'w', a str; it takes a Parameter"),
    "nf.set_value(w)": (ArgumentError, "set_value() missing 1 required positional argument: 'value'"),
    "nf.set_value(x, a)": (ArgumentError, "a Placeholder; it takes a Parameter"),
    "nf.set_value(w, np.zeros(3))": (RuntimeFault, "parameter w has shape (4, 5)"),
    "nf.load('/nonexistent.nflib')": (PackageError, "/nonexistent.nflib is no package, or not a whole one: it has no"),
    "nf.load(3)": (ArgumentError, "load: path is 3, an int"),
    "nf.compile([x], [x]).save(3)": (ArgumentError, "save: path is 3, an int"),
    "nf.compile([x], [x]).save('/tmp/p.nflib', infer=x)": (ArgumentError, "save: others['infer'] is <Placeholder x: "),
    "nf.save_parameters('/tmp/w', ['w'])": (
        ArgumentError,
        "save_parameters: parameters[0] is 'w', a str",
    ),
    "nf.save_parameters([w], '/tmp/w')": (
        ArgumentError,
        "save_parameters: path is [<Parameter w: ",
    ),
    "nf.load_parameters('/nonexistent', [w])": (CheckpointError, "/nonexistent"),
    # programs
    "nf.compile()": (ArgumentError, "compile() missing 1 required positional argument: 'outputs'"),
    "nf.compile('loss')": (ArgumentError, "compile: outputs is 'loss', a str; it takes a list of Tensor or a Tensor"),
    "nf.compile([loss, 3.0], [x])": (ArgumentError, "compile: outputs[1] is 3.0, a float; it takes a Tensor"),
    "nf.compile([loss])": (GraphError, "the program reads placeholder x, which is not among the inputs"),
    "nf.compile([loss], ['x'])": (ArgumentError, "compile: inputs[0] is 'x', a str; it takes a Placeholder"),
    "nf.compile([loss], {'x': x})": (ArgumentError, "a dict; it takes a list of Placeholder or a Placeholder"),
    "nf.compile([loss], [x, x])": (GraphError, "x is among the inputs twice"),
    "nf.compile([loss], [loss])": (GraphError, "is among the inputs but is no placeholder"),
    "nf.compile([loss], [x], {w: 0.0})": (ArgumentError, "compile: updates[w] is 0.0, a float; it takes a Tensor"),
    "nf.compile([loss], [x], {w: None})": (ArgumentError, "compile: updates[w] is None"),
    "nf.compile([loss], [x], {'w': w})": (ArgumentError, "compile: updates has the key 'w', which is not a Tensor"),
    "nf.compile([loss], [x], {x: w})": (GraphError, "x is updated but is no parameter (nf.parameter)"),
    "nf.compile([loss], [x], [(w, w)])": (ArgumentError, "a list; it takes a dict of Tensor or None"),
    "nf.compile([loss], [x], target='gpu')": (ConfigError, "there is no target 'gpu'"),
    # layers, losses, optimizers
    "F.linear(x)": (ArgumentError, "linear() missing 1 required positional argument: 'w'"),
    "F.linear(x, 'w')": (ArgumentError, "linear: w is 'w', a str; it takes a Tensor"),
    "F.linear(x, y)": (ExpressionError, "linear takes x[..., I] and w[O, I], not x[4, 5], y[5, 3]"),
    "F.conv2d(image, kernel, stride=0)": (ExpressionError, "stride 0 and dilation 1 are at least 1"),
    "F.conv2d(image, kernel, groups='a')": (ArgumentError, "conv2d: groups is 'a', a str; it takes an integer"),
    "F.group_norm(image, 0)": (ExpressionError, "group_norm: 0 groups do not divide image[2, 3, 8, 8]"),
    "F.cross_entropy(x, x)": (ExpressionError, "cross_entropy takes logits[..., K] and integer labels[...]"),
    "F.mse_loss(x, y)": (ExpressionError, "mse_loss takes two tensors of one shape"),
    "nf.nn.Linear(4)": (ArgumentError, "missing 1 required positional argument: 'outputs'"),
    "nf.nn.Linear('4', 5)": (ArgumentError, "Linear: inputs is '4', a str; it takes an integer"),
    "nf.nn.Linear(4, 5, name=3)": (ArgumentError, "Linear: name is 3, an int; it takes a text"),
    "nf.nn.Linear(4, 5)(x)": (ExpressionError, "linear takes x[..., I] and w[O, I]"),
    "nf.nn.Conv2d(3, 4, 3, groups=0)": (ExpressionError, "Conv2d: 0 groups do not divide 3 channels"),
    "nf.nn.MultiHeadAttention(8, 0)": (ExpressionError, "0 heads do not divide a width of 8"),
    "nf.nn.Sequential(nf.nn.Linear(5, 3), 'relu')": (ArgumentError, "Sequential: layers[1] is 'relu', a str; it takes"),
    "nf.optim.SGD('0.1')": (ArgumentError, "SGD: lr is '0.1', a str; it takes a number or a Tensor"),
    "nf.optim.SGD(0.1, 'a')": (ArgumentError, "SGD: momentum is 'a', a str; it takes a number"),
    "nf.optim.Adam(betas=0.9)": (ArgumentError, "Adam: betas is 0.9, a float; it takes a tuple of number"),
    "nf.optim.Adam(learning_rate=0.1)": (ArgumentError, "got an unexpected keyword argument 'learning_rate'"),
    "nf.optim.global_norm([])": (ExpressionError, "the global norm is that of one gradient at least"),
    "F.multi_head_attention(x, x, x, x, x, 2)": (ExpressionError, "multi_head_attention takes x[B, S, E], not x[4, 5]"),
    "F.multi_head_attention(cube, y, v, y, v, 0)": (ExpressionError, "0 heads do not fit cube[2, 3, 5]"),
    "F.scaled_dot_product_attention(x, x, x, image)": (ExpressionError, "the mask has more dimensions than the scores"),
    "F.lstm_cell(x, v, x, x, x)": (ExpressionError, "lstm_cell takes h[B, H] and weights [4H, I], [4H, H], not v[5]"),
    "F.gru_cell(x, v, x, x)": (ExpressionError, "gru_cell takes h[B, H] and weights [3H, I], [3H, H], not v[5]"),
    "F.lstm_gates(x, x, {'a': 1})": (ExpressionError, "takes the columns of the gates i, f, g and o, not of a"),
    "F.random_bits((4,), seed, [1])": (ExpressionError, "stream is [1]; it is an integer"),
    "F.batch_norm(v, v, v, v, v)": (ExpressionError, "batch_norm takes x[B, C, ...], not v[5]"),
    "F.batch_norm_inference(v, v, v, v, v)": (ExpressionError, "gamma and beta of v[5] have one value a channel"),
    "F.adaptive_avg_pool(image, 0)": (ExpressionError, "adaptive pooling: size 0 is not at least 1"),
    "F.adaptive_max_pool(image, 2**63)": (ExpressionError, "elements"),
    "F.depthwise_conv2d(x, kernel)": (ExpressionError, "depthwise_conv2d takes x[B, C, H, W], not x[4, 5]"),
    "F.shift_conv2d(shifted, nf.placeholder((4, 9)), stride=0)": (
        ExpressionError,
        "stride 0 is not at least 1",
    ),
    "nf.nn.conv_norm(nf.nn.Parameters('m'), 'c', image, 4, 3, groups=0)": (ExpressionError, "groups that divide C"),
    "nf.nn.LSTMCell(5, 0)": (ExpressionError, "LSTMCell: size 0 is not at least 1"),
    "nf.nn.init.initial_value(3)": (ArgumentError, "initial_value: parameter is 3, an int; it takes a Parameter"),
    "nf.optim.global_norm({3})": (ArgumentError, "global_norm: gradients[0] is 3, an int; it takes a Tensor"),
    "nf.optim.SGD(groups=iter([3]))": (ArgumentError, "and its items are not such: write them as a list"),
    # training
    "nf.compile([loss], [x], precision='half')": (ConfigError, "precision 'half' is none of fp32, bf16, fp16"),
    "nf.mixed_precision(loss)": (ArgumentError, "missing 1 required positional argument: 'precision'"),
    "nf.mixed_precision('loss', 'bf16')": (ArgumentError, "mixed_precision: tensors is 'loss', a str"),
    "nf.mixed_precision(loss, 16)": (ConfigError, "precision 16 is none of fp32, bf16, fp16"),
    "trainer(precision='tf32')": (ConfigError, "precision 'tf32' is one of NVIDIA's tensor cores"),
    "nf.Trainer(loss, [w])": (ArgumentError, "missing 1 required keyword-only argument: 'inputs'"),
    "nf.Trainer(loss, ['w'], inputs=[x])": (
        ArgumentError,
        "Trainer: parameters[0] is 'w', a str; it takes a Parameter",
    ),
    "nf.Trainer('loss', [w], inputs=[x])": (ArgumentError, "Trainer: loss is 'loss', a str; it takes a Tensor"),
    "nf.Trainer(loss, [w], inputs=[])": (ConfigError, "a trainer has one input at least"),
    "trainer(optimizer='adam')": (ArgumentError, "Trainer: optimizer is 'adam', a str; it takes an Optimizer or None"),
    "trainer(metrics={'a': 3.0})": (ArgumentError, "Trainer: metrics['a'] is 3.0, a float; it takes a Tensor"),
    "trainer(mode='train')": (ConfigError, "Trainer mode 'train' is none of static, dynamic"),
    "trainer().fit(None)": (ArgumentError, "Trainer.fit: batches is None"),
    "trainer().fit([{'x': a}])": (RuntimeFault, "a batch is a list of arrays, one for each input (x), not a dict"),
    "trainer().fit([(a, a)])": (RuntimeFault, "a batch has 2 arrays for 1 inputs (x)"),
    "trainer().fit(lambda: None)": (RuntimeFault, "what makes batches gave None"),
    "trainer().fit([3])": (RuntimeFault, "a batch is a list of arrays, one for each input (x), not a int"),
    "trainer().fit([(a,)], report=1j)": (ArgumentError, "report is 1j, a complex; it takes a text or a path"),
    "trainer().fit([(a,)], on_step=lambda: None)": (ArgumentError, "will be called with 1 arguments: too many"),
    "trainer().evaluate([(a, 'all')])": (RuntimeFault, "ends with how many of its samples count, not with 'all'"),
    "trainer().evaluate(3)": (ArgumentError, "Trainer.evaluate: batches is 3, an int; it takes"),
    "trainer().predict(x * w, 3)": (RuntimeFault, "3 is neither an array nor batches"),
    "trainer().predict([], a)": (ConfigError, "there is nothing to compute: give one tensor at least"),
    # data
    "data.Dataset([1], [2], 3)": (DataError, "images are a NumPy array, not [1]"),
    "data.Batches(samples, 9)": (DataError, "batches of 9 need a batch size between 1 and 8"),
    "data.load_mnist(3)": (ArgumentError, "load_mnist: folder is 3, an int; it takes a text or a Path"),
    "data.chain(10, 5, -1, 2)": (DataError, "neither is less than 0, and all have 268435456 words at most"),
    "data.chain(10, 5, 8, 2, seed=-1)": (DataError, "the seed is -1; it is at least 0"),
    "data.resize_bilinear(a, 3)": (DataError, "resized to two sizes of at least 1, not to 3"),
    # NumPy's functions, and its arrays
    "np.sum(x, keepdims='a')": (ExpressionError, "np.sum of a tensor: keepdims is 'a'; it is True or False"),
    "np.take(x, [1, [2]])": (ExpressionError, "the indices [1, [2]] are no array"),
    "nf.compute((4,), int)": (ExpressionError, "the body is a function of axes, not <class 'int'>"),
    "nf.reshape(x, [None, 5])": (ExpressionError, "has extent None; extents are integers greater than 0"),
    "nf.parameter((2,), init=[1, [2]])": (ExpressionError, "is no array: setting an array element with a sequence"),
    "nf.constant(a, dtype=b'a')": (ExpressionError, "dtype b'a' is not one of"),
    "nf.check_grad(loss, [w], step=0)": (GradientError, "the seed is 0, the step 0; they are at least 0, and above 0"),
    "nf.var(1.5, 1)": (ExpressionError, "axes"),
    "nf.compile([loss], [x])(None)": (RuntimeFault, "input x"),
    "nf.compile([loss], [x])()": (RuntimeFault, "the program takes 1 arrays (x), got 0"),
    "nf.compile([loss], [x]).profile(a, runs=0)": (RuntimeFault, "a profile has at least one run, not 0"),
    "nf.compile([loss], [x])(np.zeros(3))": (RuntimeFault, "input x has shape (4, 5), the array (3,)"),
}


@pytest.mark.tvm
@pytest.mark.parametrize("call", MISTAKES)
def test_mistake(call):
    kind, words = MISTAKES[call]
    with pytest.raises(kind) as caught:
        eval(call)
    assert words in str(caught.value)
    package = str(Path(nf.__file__).parent)
    frames = [f.filename for f in traceback.extract_tb(caught.value.__traceback__)]
    assert not [f for f in frames if f.startswith(package)]
    assert caught.value.__suppress_context__ and caught.value.__cause__ is None

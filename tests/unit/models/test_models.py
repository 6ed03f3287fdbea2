"""Models by name and the user's own: weights from the seed alone, and every misfit one line."""

import re
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from unit.builders import same_bits

from mpifl.common.errors import InputError
from mpifl.common.plugins import load_plugin
from mpifl.data.shards.shards import Features
from mpifl.learning import models
from mpifl.learning.models.building import MODELS

MNIST = Features(shape=(1, 28, 28), dtype="uint8", scale=1 / 255)
SMALL = Features(shape=(4,), dtype="float32")
TOKENS = Features(shape=(6,), dtype="int32")

USERS = """
    from torch import nn

    class Embedded(nn.Module):
        def __init__(self, classes, width):
            super().__init__()
            self.embedding, self.head = nn.Embedding(10, width), nn.Linear(width, classes)

        def forward(self, x):
            return self.head(self.embedding(x).mean(1))

    def plain():
        return nn.Linear(4, 3)

    def told(shape, classes, width=2):
        return nn.Sequential(nn.Linear(shape[0], width), nn.Linear(width, classes))

    def anything(shape, **more):
        return nn.Linear(shape[0], more["classes"] if "classes" in more else 3)

    def transposed(classes):
        return nn.Sequential(nn.Linear(4, classes), nn.Flatten(0))

    def two_answers():
        class Two(nn.Module):
            def forward(self, x):
                return x, x
        return Two()

    def asserting():
        assert False, "width must be even"

    number = 3
"""


@pytest.fixture(autouse=True)
def users(tmp_path, monkeypatch):
    """Put the user's module `toy_models` on the path."""
    (tmp_path / "toy_models.py").write_text(textwrap.dedent(USERS))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("toy_models", None)


def build(name="2nn", features=MNIST, classes=10, seed=0, **arguments):
    return models.build(name, arguments, features, classes, seed)


def size(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("name", "arguments", "parameters"),
    [
        ("2nn", {}, 199_210),
        ("cnn", {}, 1_663_370),
        ("logreg", {}, 7_850),
        ("mlp", {}, 199_210),
        ("mlp", {"hidden": [64, 32]}, 784 * 64 + 64 + 64 * 32 + 32 + 32 * 10 + 10),
        ("mlp", {"hidden": []}, 7_850),
    ],
)
def test_a_model_has_the_papers_number_of_parameters(name, arguments, parameters):
    assert size(build(name, **arguments)) == parameters


@pytest.mark.parametrize("name", ["logreg", "mlp", "2nn", "cnn"])
def test_a_model_answers_each_example_with_a_logit_for_each_class(name):
    for shape, classes in (((1, 28, 28), 10), ((3, 32, 32), 7)):
        module = build(name, Features(shape=shape, dtype="uint8", scale=1.0), classes)
        assert module(torch.zeros(5, *shape)).shape == (5, classes)


@pytest.mark.parametrize(("sides", "depth"), [((16, 24), 3), ((17, 30), 2), ((5, 3), 1)])
def test_a_u_net_answers_each_pixel_of_images_of_any_size(sides, depth):
    features = Features(shape=(3, *sides), dtype="uint8", scale=1.0)
    module = build("unet", features, 4, width=8, depth=depth)
    assert module(torch.zeros(2, 3, *sides)).shape == (2, 4, *sides)


def test_a_u_net_has_two_convolutions_a_stage_and_hands_over_what_it_saw():
    def twice(a, b):
        return 9 * a * b + b + 9 * b * b + b + 4 * b

    stages = twice(3, 8) + twice(8, 16) + twice(16, 8)
    module = build("unet", Features(shape=(3, 8, 8), dtype="float32"), 2, width=8, depth=1)
    assert size(module) == stages + (4 * 16 * 8 + 8) + (8 * 2 + 2)
    x = torch.rand(1, 3, 8, 8)
    with torch.no_grad():
        module.up[0].weight.zero_()  # nothing comes from below: what is seen beside it is enough to differ
        module.up[0].bias.zero_()
        assert not torch.allclose(module(x), module(1 - x))


def test_the_u_net_of_the_documents_is_the_built_in_one_and_a_deeper_one_is_refused(tmp_path, monkeypatch):
    features = Features(shape=(1, 20, 12), dtype="uint8", scale=1 / 255)
    module = build("unet", features, 2, width=8, depth=2)
    (tmp_path / "runs/nodules").mkdir(parents=True)
    save_file(module.state_dict(), tmp_path / "runs/nodules/model.safetensors")
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[3] / "docs/howto/medical.md").read_text()
    (code,) = re.findall(r"```python\n(import torch\n.*?)```", text, re.DOTALL)
    pixels = torch.randint(256, (2, 1, 20, 12)).float()
    exec(code, told := {"pixels": pixels})
    assert torch.equal(told["probabilities"], module(pixels / 255).softmax(1))
    with pytest.raises(InputError, match=r"'depth': 4}: depth at most 3 for images of 12 x 20$"):
        build("unet", features, 2, width=8, depth=4)


def test_weights_are_functions_of_the_seed_alone():
    torch.manual_seed(1)
    one = build(seed=3).state_dict()
    torch.manual_seed(2)
    assert all(same_bits(value, one[name]) for name, value in build(seed=3).state_dict().items())
    assert not any(torch.equal(value, one[name]) for name, value in build(seed=4).state_dict().items())


def test_global_randomness_is_left_as_it_was():
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    build("cnn")
    assert torch.equal(torch.get_rng_state(), before)
    assert np.random.get_state()[1].tolist() == numpy_before  # noqa: NPY002
    with pytest.raises(InputError):
        build("cnn", SMALL)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "features", "arguments", "parameters"),
    [
        ("toy_models:plain", SMALL, {}, 15),
        ("toy_models:told", SMALL, {}, 19),
        ("toy_models:told", SMALL, {"width": 5}, 43),
        ("toy_models:anything", SMALL, {"depth": 2}, 15),
        ("toy_models:Embedded", TOKENS, {"width": 2}, 29),
    ],
)
def test_a_users_factory_gets_what_it_has_parameters_for(name, features, arguments, parameters):
    assert size(build(name, features, 3, **arguments)) == parameters


WRONG = {
    "unknown": (
        ("3nn", MNIST, {}),
        f"[model] name = '3nn': unknown; did you mean 'cnn'? use {', '.join(MODELS)} or your own",
    ),
    "unknown key": (
        ("mlp", MNIST, {"hiden": [3]}),
        "has no key 'hiden'; did you mean 'hidden'?",
    ),
    "key of a model without": (
        ("2nn", MNIST, {"hidden": [3]}),
        "[model] has no key 'hidden'; 2nn takes none",
    ),
    "wrong argument": (
        ("mlp", MNIST, {"hidden": 3}),
        "[model] name = 'mlp' does not take features of shape [1, 28, 28]",
    ),
    "argument of another type": (("mlp", MNIST, {"hidden": ["a"]}), "with {'hidden': ['a']}"),
    "flat features for images": (
        ("cnn", SMALL, {}),
        "'cnn' does not take features of shape [4] and 3 classes",
    ),
    "too small an image": (("cnn", Features(shape=(1, 2, 2), dtype="uint8", scale=1.0), {}), "does not take"),
    "other width": (
        ("toy_models:plain", Features(shape=(5,), dtype="float32"), {}),
        "shapes cannot be multiplied",
    ),
    "integers for a linear layer": (
        ("toy_models:plain", Features(shape=(4,), dtype="uint8"), {}),
        "uint8 without a scale, which a model receives as tokens",
    ),
    "other answers": (
        ("toy_models:transposed", SMALL, {}),
        "it answers 2 examples with shape [6], not [2, 3]",
    ),
    "missing argument": (
        ("toy_models:Embedded", TOKENS, {}),
        "missing 1 required positional argument: 'width'",
    ),
    "no such attribute": (
        ("toy_models:nothing", SMALL, {}),
        "module 'toy_models' has no attribute 'nothing'",
    ),
    "no such module": (("no_such_module:x", SMALL, {}), "No module named 'no_such_module'"),
    "no function": (("toy_models:number", SMALL, {}), "[model] name = 'toy_models:number'"),
    "a tuple of answers": (("toy_models:two_answers", SMALL, {}), "[model] name = 'toy_models:two_answers'"),
    "an assertion": (("toy_models:asserting", SMALL, {}), "width must be even"),
}


@pytest.mark.parametrize("mistake", WRONG)
@pytest.mark.filterwarnings("ignore:Initializing zero-element")
def test_a_model_that_does_not_fit_is_one_line(mistake):
    (name, features, arguments), reason = WRONG[mistake]
    with pytest.raises(InputError) as refused:
        build(name, features, 3, **arguments)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("characters", "parameters"), [(65, 815_945), (89, 822_305), (256, 866_560)])
def test_the_character_lstm_has_its_parameters_and_answers_for_every_character(characters, parameters):
    module = models.build("char-lstm", {}, Features(shape=(80,), dtype="uint8"), characters, 0)
    assert sum(p.numel() for p in module.parameters()) == parameters == 798_720 + 265 * characters
    x = torch.randint(characters, (3, 80), generator=torch.Generator().manual_seed(0))
    assert module(x).shape == (3, characters, 80)
    assert torch.equal(module.head(module.features(x)), module(x))


def test_the_character_lstm_sees_no_character_to_come():
    module = models.build("char-lstm", {"hidden": 8, "layers": 1}, Features(shape=(6,), dtype="int64"), 5, 0)
    x = torch.zeros(1, 6, dtype=torch.int64)
    other = x.clone()
    other[0, 4] = 3
    assert torch.equal(module(x)[..., :4], module(other)[..., :4])
    assert not torch.equal(module(x)[..., 4:], module(other)[..., 4:])


GPT = {"width": 16, "layers": 2, "heads": 4}


def test_the_gpt_has_its_parameters_and_sees_no_token_to_come():
    module = models.build("gpt", GPT, Features(shape=(6,), dtype="int64"), 5, 0)
    assert sum(p.numel() for p in module.parameters()) == 5 * 33 + 6 * 16 + 2 * (12 * 256 + 13 * 16) + 32
    x = torch.zeros(1, 6, dtype=torch.int64)
    other = x.clone()
    other[0, 4] = 3
    assert module(x).shape == (1, 5, 6)
    assert torch.allclose(module(x)[..., :4], module(other)[..., :4], atol=1e-6)
    assert not torch.allclose(module(x)[..., 4:], module(other)[..., 4:])
    assert torch.equal(module.head(module.features(x)), module(x))


def test_the_gpt_is_the_layers_of_torch_with_the_same_weights():
    module = models.build("gpt", GPT, Features(shape=(6,), dtype="int64"), 5, 0).eval()
    states = module.features
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    x = torch.randint(5, (3, 6), generator=torch.Generator().manual_seed(0))
    seen = states.token(x) + states.position.weight
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    for block in states.blocks:
        layer = nn.TransformerEncoderLayer(16, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True)
        layer.self_attn.in_proj_weight = block.queries_keys_values.weight
        layer.self_attn.in_proj_bias = block.queries_keys_values.bias
        layer.self_attn.out_proj = block.attended
        layer.linear1, layer.linear2 = block.mlp[0], block.mlp[2]
        layer.norm1, layer.norm2 = block.before_attention, block.before_mlp
        seen = layer(seen, src_mask=mask)
    expected = states.norm(seen) @ module.head.weight[..., 0].T + module.head.bias
    assert torch.allclose(module(x), expected.transpose(1, 2), atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "shape", "reason"),
    [
        ({**GPT, "heads": 3}, (6,), "width = 16 is not a multiple of heads = 3"),
        (GPT, (6, 6), "gpt takes tokens, [L]"),
    ],
)
def test_a_gpt_that_cannot_be_is_one_line(arguments, shape, reason):
    with pytest.raises(InputError, match=re.escape(reason)):
        models.build("gpt", arguments, Features(shape=shape, dtype="int64"), 5, 0)


def test_trying_a_model_out_leaves_its_statistics_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS, "bn", lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)))
    assert build("bn", SMALL, 3)[0].num_batches_tracked == 0


def test_a_plugin_is_found_in_the_folder_where_the_command_runs(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("answer = 42\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    assert load_plugin("only_here:answer", "key", []) == 42
    sys.modules.pop("only_here")


def test_own_code_that_cannot_be_imported_is_one_line_with_its_place(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = "from mpifl import FedAvg\n\n\nclass Own(FedAvg):\n    decay: 0.6\n"
    for name, text, said in (
        ("untyped", source, r"untyped.py:4: Pydantic.*; write a field as `decay: float = 0.6`$"),
        ("broken", "x = (\n", r"broken.py:1: SyntaxError: .*"),
        ("failing", "x = 1\ny = 1 / 0\n", r"failing.py:2: ZeroDivisionError: division by zero$"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
        with pytest.raises(InputError, match=rf"^key = '{name}:Own': {tmp_path}/{said}") as refused:
            load_plugin(f"{name}:Own", "key", [])
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fedpror", "key = 'fedpror': unknown; use a, b or your own 'package.module:name'"),
        ("", "key = '': unknown; use a, b"),
        (":x", "key = ':x': Empty module name"),
        ("toy_models:", "key = 'toy_models:'"),
        (".toy_models:x", "key = '.toy_models:x'"),
        ("own/toy.py:X", "key = 'own/toy.py:X': names a file; name its module, 'own.toy:X'"),
    ],
)
def test_what_is_no_plugin_is_one_line(name, reason):
    with pytest.raises(InputError) as refused:
        load_plugin(name, "key", ["a", "b"])
    assert str(refused.value).startswith(reason)
    assert "\n" not in str(refused.value)

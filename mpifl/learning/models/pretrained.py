"""Models of Hugging Face's transformers from a local folder; with peft, only adapters are trained."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from mpifl.common import InputError, did_you_mean, one_line
from mpifl.common.machine import floors

USUAL = ("r", "lora_alpha", "lora_dropout", "target_modules", "modules_to_save")
"""The keys of `lora` that most jobs need."""
LINEAR = ("Linear", "Conv1D")
"""The classes of layers that adapters usually stand beside."""


class Pretrained(nn.Module):
    """A model of transformers that returns only its logits, with classes in dimension 1.

    Attributes:
        model: The library's own model, or peft's around it.
    """

    def __init__(self, model: Any, classes: int, stored: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__()
        self.model = model
        self._stored = dict(stored)
        self._classes = classes
        self._positions: int = max(getattr(model.config, "max_position_embeddings", None) or 0, 0)

    def forward(self, input_ids: Tensor, **inputs: Tensor) -> Tensor:
        """Return logits, of shape [n, classes] for texts and [n, classes, L] for tokens.

        A vocabulary may be padded, so only the logits of the first `classes` tokens are returned.

        Raises:
            ValueError: texts are longer than the model has positions. With rotary ones it would compute.
        """
        if self._positions and input_ids.shape[1] > self._positions:
            many = f"texts of {input_ids.shape[1]} tokens are beyond the model's {self._positions} positions"
            raise ValueError(f"{many}; cut them by --length {self._positions}")
        logits: Tensor = self.model(input_ids=input_ids, **inputs).logits
        return logits[..., : self._classes].movedim(-1, 1)

    def check_room(self, tokens: int, more: int) -> None:
        """Raise ValueError if so many tokens, and more, are beyond the model's positions."""
        if self._positions and tokens + more > self._positions:
            what = f"{tokens} tokens and {more} more"
            raise ValueError(f"{what} are beyond the model's {self._positions} positions")

    def go_on(
        self, tokens: Sequence[int], length: int, end: int | None, temperature: float | None
    ) -> tuple[list[int], bool]:
        """Return the tokens that transformers' `generate` adds to a text, without the end, and whether it
        came. `check_room` says whether there is room."""
        config: Any = self.model.config
        ends = self.model.generation_config.eos_token_id if end is None else end
        drawn = {"temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {}
        given = torch.tensor([list(tokens)], device=self.model.device)
        padded = list(range(self._classes, config.vocab_size))
        told = self.model.generate(
            input_ids=given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=length,
            do_sample=temperature is not None,
            use_cache=True,
            eos_token_id=ends,
            pad_token_id=ends[0] if isinstance(ends, list) else ends,
            suppress_tokens=padded or None,
            **drawn,
        )
        found: list[int] = told[0, len(tokens) :].tolist()
        ended = bool(found) and found[-1] in (ends if isinstance(ends, list) else [ends])
        return found[: len(found) - ended], ended

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model in the libraries' format; with adapters, write only the adapters."""
        self._write(self.model, folder)

    def save_merged(self, folder: str | Path) -> str:
        """Write the model with adapters merged into its weights, and in the module itself; return its class.

        Tied weights are written once, unless adapters beside one of them have made them differ.
        """
        model = self.model
        if hasattr(model, "merge_and_unload"):
            _part_tied(model)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # peft warns of tied weights, which are parted
                self.model = model = model.merge_and_unload()
        inside, head = model.get_input_embeddings(), model.get_output_embeddings()
        if head is not None and head.weight is not inside.weight:
            model.config.tie_word_embeddings = torch.equal(head.weight, inside.weight)
        self._write(model, folder)
        return type(model).__name__

    def _write(self, model: Any, folder: str | Path) -> None:
        trained = {key: getattr(model.config, key) for key in self._stored}
        for key, value in self._stored.items():
            setattr(model.config, key, value)
        try:
            model.save_pretrained(folder)
        finally:
            for key, value in trained.items():
                setattr(model.config, key, value)


def causal(classes: int, path: str, lora: Mapping[str, Any] | None = None) -> nn.Module:
    """Return a model of the next token, from a folder of `AutoModelForCausalLM`.

    It takes tokens [n, L], or arrays by the model's names, such as input_ids and attention_mask.

    Args:
        classes: The number of tokens in the vocabulary.
        lora: The arguments of peft's `LoraConfig`; without them all parameters are trained.

    Raises:
        InputError: there is no such folder, the libraries cannot read it, or `lora` has another key.
    """
    model = _read("AutoModelForCausalLM", path, {"dtype": "auto" if lora else "float32"})
    stored = {key: getattr(model.config, key, None) for key in ("use_cache", "pad_token_id")}
    model.config.use_cache = False  # no later token would use a batch's keys and values
    model.config.pad_token_id = None  # padding is at the end and has no target, so it needs no mask
    return Pretrained(_adapted(model, lora, "CAUSAL_LM"), classes, stored)


def classifier(classes: int, path: str, lora: Mapping[str, Any] | None = None) -> nn.Module:
    """Return a model of a text's class, from a folder of `AutoModelForSequenceClassification`.

    If the folder lacks the last layer, it is drawn from the seed. It is trained together with the adapters.
    Inputs and arguments are those of `causal`.
    """
    model = _read("AutoModelForSequenceClassification", path, {"dtype": "float32", "num_labels": classes})
    return Pretrained(_adapted(model, lora, "SEQ_CLS"), classes)


def write_pretrained(module: nn.Module, folder: Path, *, adapters: bool = False) -> str:
    """Write a model of transformers to a folder, adapters merged into its weights or alone; return the class
    that opens it.

    Raises:
        ValueError: it is no such model, or has no adapters and they are asked for.
    """
    if not isinstance(module, Pretrained):
        raise ValueError("is no model of transformers; model.safetensors in the run folder has its weights")
    if not adapters:
        return f"transformers.{module.save_merged(folder)}"
    if not hasattr(module.model, "merge_and_unload"):
        raise ValueError("has no adapters; leave --adapters out")
    module.save_pretrained(folder)
    return "peft.PeftModel"


def _part_tied(model: Any) -> None:
    """Give each layer with adapters a weight of its own: merged, they would change what is tied to it."""
    layers = [part.base_layer for part in model.modules() if hasattr(part, "base_layer")]
    every = [p for _, p in model.named_parameters(remove_duplicate=False)]
    for layer in layers:
        if (weight := getattr(layer, "weight", None)) is not None and sum(p is weight for p in every) > 1:
            layer.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)


def _read(kind: str, path: str, options: Mapping[str, Any]) -> Any:
    """Return a model with the folder's weights. They are memory-mapped, so the ranks of a node share one
    copy.

    The mapping is private: a write to a weight changes neither the file nor another rank's weight.
    """
    transformers = _library("transformers")
    if what := _no_model(Path(path)):
        raise InputError(f"[model] path = '{path}': {what}")
    transformers.utils.logging.disable_progress_bar()
    only = {"local_files_only": True, "use_safetensors": True, "output_loading_info": True}
    options = {**options, "ignore_mismatched_sizes": True}  # refused below with one line
    quiet = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()  # else every rank prints the same
    try:
        model, found = getattr(transformers, kind).from_pretrained(path, **options, **only)
    except Exception as error:  # a parser or a model may raise anything on foreign files
        raise InputError(f"[model] path = '{path}': cannot be read: {one_line(error)}") from None
    finally:
        transformers.utils.logging.set_verbosity(quiet)
    inside = f"{model.base_model_prefix}."
    if missing := sorted(name for name in found["missing_keys"] if name.startswith(inside)):
        raise InputError(f"[model] path = '{path}': lacks {len(missing)} weights, such as {missing[0]}")
    if others := found["mismatched_keys"]:
        within = [one for one in others if one[0].startswith(inside)]
        name, there, wanted = min(within or others)
        what = f"{name} has shape {list(there)}, and {list(wanted)} is needed"
        if not within and "num_labels" in options:
            what += f"; save it with num_labels = {options['num_labels']}, or without its last layer"
        raise InputError(f"[model] path = '{path}': {what}")
    return model


def _no_model(path: Path) -> str:
    """Return why a path names no folder of a whole model, and what to name; "" where it does."""
    folder = path.parent if path.is_file() else path
    adapters = folder / "adapter_model.safetensors"
    if adapters.is_file() and not (folder / "config.json").is_file():
        return f"holds adapters alone; name the base model's folder, and [model] weights = '{adapters}'"
    if path.is_file():
        return f"is a file; name its folder, '{folder}'"
    wanted = "name one with config.json and model.safetensors, no name on the hub"
    return "" if path.is_dir() else f"no such folder; {wanted}"


def _adapted(model: Any, lora: Mapping[str, Any] | None, task: str) -> Any:
    """Return the model with adapters, of which only these are trained; without `lora`, the model itself."""
    if lora is None:
        return model
    peft = _library("peft")
    known = [key for key in inspect.signature(peft.LoraConfig).parameters if key != "task_type"]
    if unknown := next((key for key in lora if key not in known), None):
        hint = "did you mean 'r'? " if unknown == "rank" else did_you_mean(unknown, known)
        raise InputError(
            f"[model] lora has no key '{unknown}'; {hint}peft takes {', '.join(USUAL)} and others"
        )
    asked, names = lora.get("target_modules"), [f".{name}" for name, _ in model.named_modules()]
    listed = [] if isinstance(asked, str | None) else [*asked]
    if lacking := [one for one in listed if not any(name.endswith(f".{one}") for name in names)]:
        raise _no_target(model, lacking)  # peft leaves some out in silence, if it finds others
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each rank would warn of settings that peft corrects by itself
        try:
            return peft.get_peft_model(model, peft.LoraConfig(task_type=task, **lora))
        except ValueError as error:
            if "target_modules" not in lora or "arget modules" not in str(error):
                raise
            raise _no_target(model, lora["target_modules"]) from None


def _no_target(model: Any, asked: Any) -> InputError:
    """Return the error that a model lacks target modules."""
    linear = [name for name, part in model.named_modules() if type(part).__name__ in LINEAR]
    there = [*dict.fromkeys(name.rpartition(".")[2] for name in linear)]
    text = f"a text is a pattern of whole names, write ['{asked}']; " if asked in there else ""
    what = f"[model] lora target_modules = {asked}: the model has no layer of that name"
    return InputError(f"{what}; {text}its linear layers are {', '.join(there)}")


def _library(name: str) -> Any:
    try:
        library = importlib.import_module(name)
    except ImportError:
        raise InputError(f"[model]: this model needs {name}; pip install 'mpifl[hf]'") from None
    floors.hold("hf")
    return library

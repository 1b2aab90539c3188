"""Trainers of a TrainJob: built-in fine-tuning, a Python function, or a command."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, InstanceOf, ValidationInfo, field_validator, model_validator
from typing_extensions import Self

from trainjob.errors import InvalidSpec
from trainjob.spec.base import Spec, invalid_field, to_json_value
from trainjob.spec.checkpoints import ResumeFromField
from trainjob.spec.code import CodeField
from trainjob.spec.credential_checks import check_command, check_text, check_values
from trainjob.spec.credential_rules import contains_credentials
from trainjob.spec.framework import BuiltinConfigField
from trainjob.spec.nodes import TrainingNodes
from trainjob.spec.problems import REDACTED, SEARCH_ADVICE, is_search_space
from trainjob.spec.secrets import Env

_LONGEST_COMMAND = 128  # items of command or args; limit of the CRD from Trainer 2.2 on
MAX_ITEM_LENGTH = 65_536
"""Characters in an item of a command: limit of the CRD in Trainer 2.2, and half of the limit of Linux."""


class BuiltinTrainer(Spec):
    """The trainer of a runtime that contains one (Trainer 2.3).

    Attributes:
        config: configuration of the training, of the runtime's framework.
        env: environment variables by name; secrets as `SecretKeyReference`.
    """

    config: BuiltinConfigField = Field(default=None, validate_default=True)
    env: Env | None = None


class CustomTrainer(TrainingNodes):
    """A self-contained Python function that runs on each node.

    It is started by torchrun, or as the runtime's framework requires.

    Attributes:
        func: the function. Its source is sent, so it must import what it needs and use no names from outside it. If
            its return value on rank 0 can be written as JSON, it is the last line of the log: `trainjob result: ...`.
        func_args: keyword arguments of the function, as JSON values.
        image: container image; by default the runtime's image.
        packages_to_install: packages that pip installs first.
        pip_index_urls: package indexes for pip, of which the first is the main index; by default pip's own.
        env: environment variables by name; secrets as `SecretKeyReference`.
        resume: whether the function uses transformers' Trainer and can resume. It then can import the callback and the
            function that `trainjob.frameworks.transformers` describes.
        resume_from: checkpoint of another training from which this one starts; only with `resume` and with
            `find_checkpoint_to_resume`. It is a `ResumeFrom`, a step, or a folder below `/workspace`.
        code: folder of the project whose modules the function imports, such as `.`, or a `Code`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    func: Callable[..., Any]
    func_args: Mapping[str, Any] | None = None
    image: str | None = Field(default=None, min_length=1)
    packages_to_install: tuple[str, ...] | None = None
    pip_index_urls: tuple[str, ...] = ()
    env: Env | None = None
    resume: bool = False
    resume_from: ResumeFromField = None
    code: CodeField | None = None

    @field_validator("func_args")
    @classmethod
    def _validate_func_args(cls, arguments: Mapping[str, Any] | None, info: ValidationInfo) -> Mapping[str, Any] | None:
        from trainjob.spec.function_arguments import list_argument_problems  # few modules are imported at parse time

        func = info.data.get("func")
        # None are given when an Airflow DAG is parsed: its task has them in a run.
        if func and arguments is not None and (problems := [*list_argument_problems(func, arguments)]):
            raise InvalidSpec(problems)
        for name, value in (arguments or {}).items():
            if is_search_space(value):
                raise invalid_field(name, value, SEARCH_ADVICE)
        # Python also reads them in the pod, so NaN is allowed.
        check_values(to_json_value(dict(arguments or {}), allow_nan=True))
        return arguments

    @model_validator(mode="after")
    def _validate_resume_from(self) -> Self:
        if self.resume_from is not None and not self.resume:
            rule = "it needs resume=True, and a function that uses find_checkpoint_to_resume"
            raise invalid_field("resume_from", self.resume_from, rule)
        return self

    @field_validator("packages_to_install")
    @classmethod
    def _validate_packages(cls, packages: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for package in packages or ():
            check_text(package, "")
            if contains_credentials(package):
                raise invalid_field(
                    "",
                    REDACTED,
                    "a package's URL must not contain a user name or password; use a Secret and PIP_ variables",
                )
            if package.startswith("-") or not package.strip():
                raise invalid_field("", package, "it must be a package; set pip's options as PIP_ variables in env")
        return packages

    @field_validator("pip_index_urls")
    @classmethod
    def _validate_index_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            if "@" in (url.partition("://")[2] or url).partition("/")[0]:
                reference = "env={'PIP_INDEX_URL': SecretKeyReference(name='NAME', key='KEY')}"
                raise invalid_field(
                    "", REDACTED, f"it must not contain a user name or password; give the whole URL as {reference}"
                )
        return urls


class CustomTrainerContainer(TrainingNodes):
    """A command in a container image that runs on each node.

    Attributes:
        image: container image; by default the runtime's image.
        command: the program and its first arguments; by default the command of the runtime or of the image.
        args: further arguments; Kubernetes expands `$(NAME)` in these and in the command.
        env: environment variables by name; secrets as `SecretKeyReference`.
        code: folder of the project that travels to the pods, such as `.`, or a `Code`. The command runs in it; `module`
            or `script` may replace the command.
        module: module of the project that is run, such as `package.train`; `args` are its arguments. torchrun starts it
            on a torch runtime, mpirun on an MPI runtime, and Python on all others.
        script: file of the project that is run in the same way, such as `scripts/train.py`.
    """

    image: str | None = Field(default=None, min_length=1)
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    env: Env | None = None
    code: CodeField | None = None
    module: str | None = None
    script: str | None = None

    @field_validator("command", "args")
    @classmethod
    def _validate_words(cls, words: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if words is None:
            return None
        check_command(validate_command(words, ""), "")
        return words

    @field_validator("command")
    @classmethod
    def _validate_program(cls, command: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if command is not None and not (command and command[0]):
            raise invalid_field("", command, "it must name a program; omit it to use the runtime's command")
        return command

    @field_validator("module")
    @classmethod
    def _validate_module(cls, module: str | None) -> str | None:
        if module is not None and not all(map(str.isidentifier, module.split("."))):
            raise invalid_field("", module, "it must be the name of a module, such as package.train")
        return module

    @field_validator("script")
    @classmethod
    def _validate_script(cls, script: str | None) -> str | None:
        if script is not None and (not script.endswith(".py") or script.startswith("/") or ".." in script.split("/")):
            raise invalid_field(
                "", script, "it must be the path of a .py file in the project, such as scripts/train.py"
            )
        return script

    @model_validator(mode="after")
    def _validate_start(self) -> Self:
        given = [name for name in ("command", "module", "script") if getattr(self, name) is not None]
        if len(given) > 1:
            raise invalid_field(given[1], getattr(self, given[1]), f"{given[0]} is given, too: remove one of them")
        return self

    @property
    def has_start(self) -> bool:
        """Whether a command, module or script is given in place of the runtime's command."""
        return any((self.command, self.module, self.script))


def validate_command(words: tuple[str, ...], field: str) -> tuple[str, ...]:
    """Return a command or its arguments if a TrainJob can contain them.

    Args:
        words: the items of the command or arguments.
        field: name of the field, for the error.

    Raises:
        InvalidSpec: there are more than 128 items, or one has more than 65,536 characters.
    """
    if len(words) > _LONGEST_COMMAND:
        raise invalid_field(field, f"{len(words)} items", f"a TrainJob can have at most {_LONGEST_COMMAND}")
    longest = max(map(len, words), default=0)
    if longest > MAX_ITEM_LENGTH:
        rule = f"a TrainJob can have at most {MAX_ITEM_LENGTH}; put it into a file of the image or the workspace"
        raise invalid_field(field, f"an item of {longest} characters", rule)
    return words


def escape_expansion(text: str) -> str:
    """Return a text, escaped so that Kubernetes expands no variables in it.

    In a container's command, arguments and environment, Kubernetes expands `$(NAME)` and replaces `$$` by `$`
    (Kubernetes, third_party/forked/golang/expansion).
    """
    return re.sub(r"\$(?=[$(])", "$$", text)


def trainer_image(name: str) -> str:
    """Return an image of Kubeflow Trainer in the newest release that we have tested."""
    return f"ghcr.io/kubeflow/trainer/{name}:v2.3.0"


def to_trainer(value: Any) -> Any:
    """Return a trainer, converted to our class from a dict or from an object of the SDK.

    A field that only one class has determines the class.

    Raises:
        InvalidSpec: the value is not a trainer, or a field is invalid.
    """
    if isinstance(value, BuiltinTrainer | CustomTrainer | CustomTrainerContainer):
        return value

    def has(name: str) -> bool:
        return name in value if isinstance(value, Mapping) else hasattr(value, name)

    kind = CustomTrainer if has("func") else BuiltinTrainer if has("config") else CustomTrainerContainer
    if value is None or isinstance(value, str | int | float | list | tuple):
        raise invalid_field("", value, "give a BuiltinTrainer, a CustomTrainer or a CustomTrainerContainer")
    return kind.from_object(value)


# Without `InstanceOf` pydantic would try each class of the union with the attributes of the chosen one.
_AnyTrainer = InstanceOf[BuiltinTrainer] | InstanceOf[CustomTrainer] | InstanceOf[CustomTrainerContainer]
Trainer = Annotated[_AnyTrainer, BeforeValidator(to_trainer)]

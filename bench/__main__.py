"""The command line, and the only importer of Hydra: `python -m bench run scenario=ckpt_local ...`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_origin, get_type_hints

from bench.config import Run
from bench.errors import BadInput, near
from bench.plan.config import Plan

if TYPE_CHECKING:
    from omegaconf import DictConfig

COMMANDS = {
    "run": "run a scenario and report what it measured",
    "report": "account a result again from its events; several: a series over sizes",
    "compare": "hold a result against another, or an arm against another: better, worse or noise",
    "plan": "from measured figures, a failure rate and a price to the decision",
    "doctor": "what a run needs of this machine, and what is missing",
}
BAD_INPUT, INTERRUPTED = 2, 130
# Groups whose keys the help lists, each with the file that has all of them.
SHOWN_KEYS = {
    "checkpoint": "default",
    "storage": "default",
    "design": "quick",
    "train": "default",
    "recovery": "_base",
    "faults": "none",
    "cluster": "_base",
}

Record = TypeVar("Record", Run, Plan)
RECORDS: dict[str, type] = {"run": Run, "plan": Plan, "doctor": Run}


def conf_dir() -> Path:
    """The configuration: beside the package in a checkout, inside it when installed."""
    package = Path(__file__).resolve().parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    command, rest = (words[0], words[1:]) if words else ("--help", [])
    if command in ("-h", "--help"):
        print(usage())
        return 0
    if command not in COMMANDS:
        return complain(f"unknown command {command!r}; {near(command, COMMANDS)}")
    if command in ("plan", "doctor"):
        return plan(rest) if command == "plan" else doctor(rest)
    if command in ("report", "compare"):
        return read_back(command, rest)
    if "-h" in rest or "--help" in rest:
        print(run_help())
        return 0
    return guarded(lambda: run(rest))


def complain(message: str) -> int:
    print(f"bench: {' '.join(message.split())}", file=sys.stderr)
    return BAD_INPUT


# --- help
def usage() -> str:
    lines = ["usage: python -m bench COMMAND [KEY=VALUE ...]", "", "commands:"]
    lines += [f"  {name:8} {text}" for name, text in COMMANDS.items()]
    return "\n".join([*lines, "", *scenario_lines(), "", "python -m bench run --help lists the keys."])


def scenario_lines() -> list[str]:
    """Each scenario with the question it answers (its `about` line)."""
    lines, paths = ["scenarios (scenario=NAME):"], sorted((conf_dir() / "scenario").glob("*.yaml"))
    width = max(len(path.stem) for path in paths)
    for path in paths:
        about = [line[6:].strip().strip('"') for line in path.read_text().splitlines() if line.startswith("about:")]
        lines.append(f"  {path.stem:{width}}  {about[0] if about else ''}")
    return lines


def run_help() -> str:
    """Built from the configuration files themselves, so that it cannot name what is not there."""
    lines = ["usage: python -m bench run [scenario=NAME] [GROUP=CHOICE ...] [KEY=VALUE ...] [-m]", ""]
    lines += [*scenario_lines(), "", "groups (GROUP=CHOICE):"]
    for group in groups():
        lines.append(f"  {group:12} {' | '.join(sorted(choices(group)))}")
    lines += ["", "keys, with their defaults (GROUP.KEY=VALUE for those of a group):"]
    skip = ("defaults:", "  - ", "hydra:", "  output_subdir", "  run:", "  sweep:", "#")
    text = (conf_dir() / "config.yaml").read_text().splitlines()
    lines += ["  " + line for line in text if line.strip() and not line.startswith(skip)]
    for group, name in SHOWN_KEYS.items():
        lines += [f"  {group}:"]
        rows = (conf_dir() / group / f"{name}.yaml").read_text().splitlines()
        lines += ["    " + line for line in rows if line.strip() and not line.startswith("#")]
    lines += ["", "-m runs a sweep: python -m bench run -m scenario=ckpt_smoke seed=1,2,3"]
    return "\n".join([*lines, "exit codes: 0 valid, 1 failed or invalid, 2 bad input, 130 interrupted"])


# --- run
def run(overrides: Sequence[str]) -> int:
    """One run, or with -m one for each combination. The exit code is the worst of them."""
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises, and every error ends as one line here
    refuse_what_hydra_words_badly(overrides)
    overrides = [opened(word) for word in overrides]
    codes = []

    @hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")
    def task(_: DictConfig) -> None:
        words: Any = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
        codes.append(one_run([str(word) for word in words]))
        if codes[-1] == INTERRUPTED:
            sys.exit(INTERRUPTED)  # ends a sweep as well

    options_first = sorted(overrides, key=lambda word: not word.startswith("-"))  # argparse refuses -m among overrides
    sys.argv = ["python -m bench run", *options_first]
    task()
    return max(codes, default=0)


def refuse_what_hydra_words_badly(overrides: Sequence[str]) -> None:
    """Unknown options (argparse would print a page) and groups given a number or null (a traceback)."""
    for word in overrides:
        key, _, value = word.partition("=")
        if word.startswith("-") and word not in ("-m", "--multirun"):
            raise BadInput(f"{word}: no such option; the only ones are --help and -m (sweep), all else is KEY=VALUE")
        no_name = re.fullmatch(r"null|true|false|[-+.\d]+", value, re.IGNORECASE)
        if no_name and key.isidentifier() and (conf_dir() / key).is_dir():
            raise BadInput(f"{key}: no such choice {value!r}; {near(value, choices(key))}")


def groups() -> list[str]:
    """The groups of a run, as the defaults list of conf/config.yaml names them."""
    text = (conf_dir() / "config.yaml").read_text()
    return [name for name in re.findall(r"^  - (\w+): ", text, re.MULTILINE) if name != "scenario"]


def choices(group: str) -> list[str]:
    """What a group can be set to; files that others build on begin with an underscore."""
    return [path.stem for path in (conf_dir() / group).glob("[!_]*.yaml")]


def one_run(overrides: list[str]) -> int:
    from bench import driver

    return guarded(lambda: driver.run(compose(overrides), given=given_keys(overrides)))


def given_keys(overrides: Sequence[str]) -> list[str]:
    """The keys that the words of the command line set, without Hydra's marks."""
    return [re.split("[=@]", word.lstrip("+~"), maxsplit=1)[0] for word in overrides]


# --- report, compare
def read_back(command: str, words: Sequence[str]) -> int:
    """The commands on results that exist. Their words are plain KEY=VALUE: nothing is composed."""
    from bench.report import comparison, series

    if "-h" in words or "--help" in words:
        print(comparison.usage() if command == "compare" else series.usage())
        return 0
    action = comparison.compare if command == "compare" else series.report
    return guarded(lambda: action(words))


# --- plan
def plan(overrides: Sequence[str]) -> int:
    if "-h" in overrides or "--help" in overrides:
        print(plan_help())
        return 0
    return guarded(lambda: one_plan(overrides), "plan")


def plan_help() -> str:
    """Built from the configuration files themselves, like that of `run`."""
    lines = ["usage: python -m bench plan [run=RESULT] [plan=PRESET] [failures=PROFILE] [KEY=VALUE ...]", ""]
    for group, title in (("plan", "presets (plan=NAME)"), ("failures", "failure profiles (failures=NAME)")):
        lines += [f"{title}:", *(f"  {name}" for name in sorted(choices(group))), ""]
    lines += ["keys, with their defaults:"]
    text = (conf_dir() / "plan.yaml").read_text().split("hydra:")[0].splitlines()
    lines += ["  " + line for line in text if line.strip() and not line.startswith(("defaults:", "  - ", "#"))]
    lines += ["  failures:", "    per_1000_node_days, weibull_shape, gaps, causes, classes: see conf/failures/", ""]
    return "\n".join([*lines, "exit codes: 0 answered, 2 bad input"])


def one_plan(overrides: Sequence[str]) -> int:
    from bench import planner

    for word in overrides:
        if word.startswith("-"):
            raise BadInput(f"{word}: no such option; all but --help is KEY=VALUE, one plan at a time")
    refuse_what_hydra_words_badly(overrides)
    return planner.run(compose_plan(overrides))


def compose_plan(overrides: Sequence[str]) -> Plan:
    """The plan that `overrides` describe, checked. Raises BadInput, and the errors of Hydra and OmegaConf."""
    return typed(_compose(overrides, "plan"), Plan)


# --- doctor
def doctor(words: Sequence[str]) -> int:
    if "-h" in words or "--help" in words:
        print(doctor_help())
        return 0
    return guarded(lambda: one_examination(words), "doctor")


def doctor_help() -> str:
    lines = ["usage: python -m bench doctor [scenario=NAME] [GROUP=CHOICE ...] [KEY=VALUE ...] [format=table|json]", ""]
    lines += ["Looks at this machine as the run with the same words would find it; keys are those of `run`.", ""]
    return "\n".join([*lines, *scenario_lines(), "", "exit codes: 0 nothing in the way, 1 a check failed, 2 bad input"])


def one_examination(words: Sequence[str]) -> int:
    from bench.doctor import examine

    forms = [word.partition("=")[2] for word in words if word.startswith("format=")]
    overrides = [word for word in words if not word.startswith("format=")]
    for word in overrides:
        if word.startswith("-"):
            raise BadInput(f"{word}: no such option; all but --help is KEY=VALUE, one run at a time")
    refuse_what_hydra_words_badly(overrides)
    return examine.run(compose(overrides), *forms[-1:])


def guarded(action: Callable[[], int], command: str = "run") -> int:
    """What the user can mend ends as one line and exit code 2, Ctrl-C outside of a running launch as one and 130."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        return action()
    except BadInput as error:
        return complain(str(error))
    except (HydraException, OmegaConfBaseException) as error:
        return complain(explain(error, command))
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return INTERRUPTED


def compose(overrides: list[str]) -> Run:
    """The run that `overrides` describe, checked. Raises BadInput, and the errors of Hydra and OmegaConf."""
    plain = _compose(overrides)
    rehearsal = list(plain.cluster.rehearsal)
    if rehearsal and plain.device == "cuda":
        plain = _compose([*rehearsal, *overrides])
    return typed(plain, Run)


def opened(word: str) -> str:
    """Hydra takes new keys of a dict only with "++" before them; a user need not know which keys are dicts."""
    key = word.partition("=")[0]
    return f"++{word}" if any(key == name or key.startswith(f"{name}.") for name in dict_keys(Run)) else word


def _compose(overrides: Sequence[str], config_name: str = "config") -> DictConfig:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()  # within a run Hydra holds the first composition; this one stands for itself
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            return hydra_compose(config_name, overrides=[opened(word) for word in overrides])
    except ValueError as error:  # Hydra's word for a group that was given a number
        raise BadInput(str(error)) from None


def typed(plain: DictConfig, record: type[Record]) -> Record:
    """Types by OmegaConf against the dataclasses, rules by the dataclasses themselves."""
    from omegaconf import OmegaConf

    schema = OmegaConf.structured(record)
    _thaw(schema)
    made = OmegaConf.to_object(OmegaConf.merge(schema, plain))
    assert isinstance(made, record)
    return made


def _thaw(node: Any) -> None:
    """Frozen classes make read-only nodes; merging fills them once, then they become frozen objects."""
    from omegaconf import DictConfig, OmegaConf

    OmegaConf.set_readonly(node, False)
    for key in node:
        child = node._get_node(key)
        if isinstance(child, DictConfig) and not child._is_none():
            _thaw(child)


# --- errors of Hydra and OmegaConf, in the words of a user
def explain(error: Exception, command: str = "run") -> str:
    missing = getattr(error, "missing_cfg_file", None)
    if isinstance(missing, str) and "/" in missing:
        group, name = missing.rsplit("/", 1)
        return f"{group}: no such choice {name!r}; {near(name, choices(group))}"
    text = str(error)
    full_key = getattr(error, "full_key", None)
    key = (
        full_key
        if text.startswith("Key '") and full_key
        else _quoted(text)
        if text.startswith(("Could not override", "Key '"))
        else None
    )
    if key is not None:
        known = known_keys(RECORDS[command])
        return f"{key}: no such key; {near(key, known)} (python -m bench {command} --help lists them)"
    first = text.splitlines()[0]
    return f"{full_key}: {first}; give a value of that type" if full_key else first


def _quoted(text: str) -> str | None:
    parts = text.split("'")
    return parts[1].lstrip("+") if len(parts) > 2 else None


def known_keys(record: type) -> list[str]:
    return [name for name, _ in typed_keys(record)]


@cache
def dict_keys(record: type) -> list[str]:
    """Those that hold what a user names: variables, options, weights."""
    return [name for name, hint in typed_keys(record) if get_origin(hint) is dict]


def typed_keys(record: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key with its type; those of a group after the group."""
    hints = get_type_hints(record)
    for entry in fields(record):
        hint = hints[entry.name]
        yield prefix + entry.name, hint
        if is_dataclass(hint):
            yield from typed_keys(hint, f"{prefix}{entry.name}.")  # type: ignore[arg-type]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # the reader of our output (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)

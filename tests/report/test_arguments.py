"""KEY=VALUE words: what is wrong is named with its remedy on one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import BadInput
from bench.report.arguments import help_text, key_values, paths, percentage, yes_or_no

KNOWN = {"base": "the one", "new": "the other"}


def test_words_become_a_dict_and_a_value_may_hold_an_equals_sign():
    assert key_values(["base=a=b", "new=c"], KNOWN) == {"base": "a=b", "new": "c"}
    assert key_values([], KNOWN) == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["base"], "base: is no KEY=VALUE; keys: base, new"),
        (["--base=x"], "--base=x: is no KEY=VALUE"),
        (["bas=x"], "bas: no such key; did you mean base?"),
        (["base=x", "base=y"], "base: given twice"),
        (["base="], r"base: has no value; give base=VALUE \(the one\)"),
    ],
)
def test_what_is_no_known_key_and_value_is_refused(words, message):
    with pytest.raises(BadInput, match=message):
        key_values(words, KNOWN)


def test_a_percentage_has_its_sign():
    assert percentage("fail_above", "5%") == 0.05
    assert percentage("fail_above", "2.5 %") == 0.025
    for wrong in ("5", "-5%", "five%", "0.05"):
        with pytest.raises(BadInput, match=r"must be a percentage of 0 or more, e\.g\. fail_above=5%"):
            percentage("fail_above", wrong)


def test_yes_and_no_are_true_and_false():
    assert yes_or_no("k", "True")
    assert not yes_or_no("k", "false")
    with pytest.raises(BadInput, match="k: must be true or false, got '1'"):
        yes_or_no("k", "1")


def test_several_paths_stand_in_brackets():
    assert paths("run", "a/b") == [Path("a/b")]
    assert paths("run", "[a, b/c,d]") == [Path("a"), Path("b/c"), Path("d")]
    for wrong in ("[]", "[a,,b]"):
        with pytest.raises(BadInput, match="empty entry"):
            paths("run", wrong)


def test_the_help_names_every_key_and_the_exit_codes():
    text = help_text(["bench x", "bench y"], KNOWN, "0 fine")
    for part in ("usage: bench x", "       bench y", "base         the one", "exit codes: 0 fine"):
        assert part in text

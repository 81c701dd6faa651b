"""The operator's own tasks: every file is either a task or an error that says what is wrong with it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from kvtui.core.errors import InputError
from kvtui.probes.own_tasks import ANSWER_TOKENS, OwnTask, load_tasks


def test_a_folder_of_prompts_is_enough(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes("\ufeffSay\r\n\thello ‌🦙\r\n".encode())
    (tmp_path / "a.md").write_text("# Title\n\nGo on.\n")
    (tmp_path / "a.expect").write_text("yes\n\n/^done\\.?$/\n")
    (tmp_path / ".hidden.png").write_bytes(b"\x89PNG")
    assert load_tasks(str(tmp_path)) == (
        OwnTask("a", "# Title\n\nGo on.", ("yes", "/^done\\.?$/")),
        OwnTask("b", "Say\n\thello ‌🦙"),
    )


def test_a_toml_file_says_it_all(tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text(
        'prompt = """\nFix it.\n"""\nfamily = "code-edit"\nexpect = ["return"]\ndepth = 12000\nanswer_tokens = 40\n'
    )
    (tmp_path / "short.toml").write_text('prompt = "Go."\nexpect = "gone"\ndepth = 0\n')
    assert load_tasks(str(tmp_path)) == (
        OwnTask("deep", "Fix it.", ("return",), "code-edit", 12000, 40),
        OwnTask("short", "Go.", ("gone",), "own", 0, ANSWER_TOKENS),
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.png", b"\x89PNG", "x.png: not a task"),
        ("x", b"text", "x: not a task"),
        ("x.txt", b"", "x.txt: is empty"),
        ("x.txt", b" \n ", "x.txt: is empty"),
        ("x.txt", b"\x89PNG\r\n\x1a\n", "x.txt: is not UTF-8 text at byte 0"),
        ("x.txt", "text".encode("utf-16"), "x.txt: is not UTF-8 text at byte 0"),
        ("x.txt", b"a\x00b", "holds the control character U\\+0000"),
        ("x.txt", b"a\x1b[2Jb", "holds the control character U\\+001B"),
        ("x.txt", b"a" * 262_145, "is larger than 256 KiB"),
        ("retrieval.txt", b"a", "retrieval is the name of a built-in task"),
        ("x.expect", b"a", "x.expect: has no prompt beside it"),
        ("\u200b.txt", b"a", "nothing of its name can be shown"),
        ("x.toml", b"prompt = ", "x.toml: is not TOML"),
        ("x.toml", b"a" + b".a" * 40_000 + b" = 1", "a key of far too many parts"),
        ("x.toml", b"a = " + b"[" * 100_000, "nested too deeply"),
        ("x.toml", b'prompt = "a"\nexpects = []', 'expects: no such key: did you mean "expect"\\?'),
        ("x.toml", b"depth = 5", "prompt: must be text"),
        ("x.toml", b'prompt = " "', "prompt: must be text"),
        ("x.toml", b'prompt = "a\\u001bb"', "prompt: must be text"),
        ("x.toml", b'prompt = "a"\nexpect = [1]', "expect: must be a list of texts"),
        ("x.toml", b'prompt = "a"\nexpect = [""]', "expect: must be a list of texts"),
        ("x.toml", b'prompt = "a"\nexpect = ["/(/"]', "/\\(/ is no regular expression"),
        ("x.toml", b'prompt = "a"\nfamily = "poem"', "family: must be one of retrieval, code-edit"),
        ("x.toml", b'prompt = "a"\ndepth = -1', "depth: must be a whole number from 0"),
        ("x.toml", b'prompt = "a"\ndepth = true', "depth: must be a whole number from 0"),
        (
            "x.toml",
            b'prompt = "a"\nanswer_tokens = 0',
            "answer_tokens: must be a whole number from 1 to 4096",
        ),
    ],
)
def test_what_is_no_task_is_an_error(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_tasks(str(tmp_path))
    assert caught.value.what.startswith(str(tmp_path))
    assert re.search(message, caught.value.line())
    assert caught.value.line().isprintable()


def test_expectations_are_read_before_anything_is_launched(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "a.expect").write_text("/[/\n")
    with pytest.raises(InputError, match=r"a\.expect: /\[/ is no regular expression"):
        load_tasks(str(tmp_path))
    (tmp_path / "a.expect").write_text("y\n" * 33)
    with pytest.raises(InputError, match="33 expectations; at most 32"):
        load_tasks(str(tmp_path))


def test_two_tasks_of_one_name_and_an_expectation_of_a_toml_task_are_errors(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('prompt = "x"')
    (tmp_path / "a.expect").write_text("y")
    with pytest.raises(InputError, match=r"belongs to a \.toml task"):
        load_tasks(str(tmp_path))
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InputError, match="another task called a"):
        load_tasks(str(tmp_path))


def test_no_folder_nothing_in_it_and_too_much_of_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_tasks(str(tmp_path / "missing"))
    with pytest.raises(InputError, match="holds no tasks"):
        load_tasks(str(tmp_path))
    (tmp_path / "sub.txt").mkdir()
    with pytest.raises(InputError, match="is no regular file"):
        load_tasks(str(tmp_path))
    (tmp_path / "sub.txt").rmdir()
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(InputError, match="is no regular file"):
        load_tasks(str(tmp_path))
    (tmp_path / "pipe.txt").unlink()
    for number in range(65):
        (tmp_path / f"{number}.txt").write_text("x")
    with pytest.raises(InputError, match="more than 64 tasks"):
        load_tasks(str(tmp_path))
    with pytest.raises(InputError, match="not a directory"):
        load_tasks(str(tmp_path / "1.txt"))

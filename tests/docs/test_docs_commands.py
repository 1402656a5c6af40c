"""Every command that a page tells a reader to type must exist.

What needs no server, key or internet is run by other tests; here each fenced
command is parsed by the program's own parser, and each option or command that
prose names in backticks must be one that the program takes.
"""

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyproxy.cli.main import build_parser

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`([^`\n]+)`")

# Designed, described and not built yet. Whoever builds one takes it out of here and mends its page.
UNBUILT_COMMANDS: set[str] = set()
UNBUILT_OPTIONS = {"--with-bodies"}
UNBUILT_PAGES = {"consultation.md"}

OTHER_PROGRAMS = {"export", "curl", "python", "keyproxy", "make"}
OTHER_PROGRAMS |= {"harbor", "docker", "install"}  # what harbor.md tells to type, tests/harbor runs


def fenced_commands(text: str) -> Iterator[str]:
    """The command lines of a page's sh and console blocks, continuations joined, prompts taken off."""
    for language, block in FENCE.findall(text):
        lines = block.replace("\\\n", " ").splitlines()
        if language == "sh":
            yield from lines
        elif language == "console":
            yield from (line[2:] for line in lines if line.startswith("$ "))


def simple_commands(line: str) -> Iterator[list[str]]:
    """Split a line at pipes, lists and substitutions into the commands that a shell would start."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    redirected = False
    for token in lexer:
        if set(token) <= set("()<>|&;"):
            redirected = bool(set(token) & set("<>"))
            if not redirected:
                yield words
                words = []
        elif redirected:
            redirected = False
        else:
            words.append(token)
            for inner in re.findall(r"\$\((.*)\)", token):
                yield from simple_commands(inner)
    yield words


def all_commands() -> list[tuple[str, list[str]]]:
    found = []
    for page in PAGES:
        for line in fenced_commands(page.read_text(encoding="utf-8")):
            found += [(page.name, words) for words in simple_commands(line) if words]
    return found


def commands_of(program: str) -> list[tuple[str, list[str]]]:
    return [(page, words) for page, words in all_commands() if Path(words[0]).name == program]


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    groups = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {name: child for group in groups for name, child in group.choices.items()}


def options(parser: argparse.ArgumentParser) -> set[str]:
    own = {option for action in parser._actions for option in action.option_strings}
    return own.union(*(options(child) for child in subparsers(parser).values()))


def prose_spans() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        if page.name not in UNBUILT_PAGES:
            text = FENCE.sub("", page.read_text(encoding="utf-8"))
            yield from ((page.name, span) for span in CODE_SPAN.findall(text))


def is_accepted(words: list[str]) -> bool:
    try:
        build_parser().parse_args(words)
    except SystemExit as end:
        return end.code == 0  # --help and --version end so
    return True


def ids(commands: list[tuple[str, list[str]]]) -> list[str]:
    return [f"{page}: {' '.join(words)}" for page, words in commands]


KEYPROXY = commands_of("keyproxy")
MAKE = commands_of("make")


@pytest.mark.parametrize(("page", "words"), KEYPROXY, ids=ids(KEYPROXY))
def test_a_fenced_keyproxy_command_is_one_that_the_parser_takes(page: str, words: list[str]) -> None:
    assert is_accepted(words[1:]), f"{page} tells the reader to run {shlex.join(words)}, which is a usage error"


@pytest.mark.parametrize(("page", "words"), MAKE, ids=ids(MAKE))
def test_a_fenced_make_target_is_in_the_makefile(page: str, words: list[str]) -> None:
    targets = set(re.findall(r"^([\w.-]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    asked = {word for word in words[1:] if "=" not in word}
    assert asked <= targets, f"{page} names make targets that do not exist"


def test_the_two_commands_of_the_readme_come_first() -> None:
    top = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:30])
    assert [words[1] for line in fenced_commands(top) for words in simple_commands(line) if words] == ["demo", "test"]


def test_no_page_holds_a_fenced_command_that_nothing_here_looks_at() -> None:
    unknown = [(page, words[0]) for page, words in all_commands() if Path(words[0]).name not in OTHER_PROGRAMS]
    assert unknown == []


def test_python_commands_name_files_that_exist() -> None:
    named = [word for _, words in commands_of("python") for word in words[1:] if "/" in word]
    assert named
    assert [word for word in named if not (ROOT / word).exists()] == []


def test_curl_commands_ask_loopback_only() -> None:
    urls = [word for _, words in commands_of("curl") for word in words if "://" in word]
    assert [url for url in urls if not re.match(r"https?://(127\.0\.0\.1|localhost)[:/]", url)] == []


def test_prose_names_no_command_that_does_not_exist() -> None:
    known = set(subparsers(build_parser()))
    named = {(page, span.split()[1]) for page, span in prose_spans() if re.match(r"keyproxy [a-z]", span)}
    assert named
    assert {(page, name) for page, name in named if name not in known | UNBUILT_COMMANDS} == set()


def test_prose_names_no_option_that_does_not_exist() -> None:
    known = options(build_parser()) | UNBUILT_OPTIONS
    ours = [
        (page, span)
        for page, span in prose_spans()
        if re.match(r"(keyproxy|serve|token|enrol|audit|receipt|doctor|--)", span)
    ]
    named = {(page, option) for page, span in ours for option in re.findall(r"--[a-z][a-z-]+", span)}
    assert named
    assert {(page, option) for page, option in named if option not in known} == set()


def test_what_is_said_to_be_unbuilt_is_not_built() -> None:
    parser = build_parser()
    assert set(subparsers(parser)) & UNBUILT_COMMANDS == set()
    assert options(parser) & UNBUILT_OPTIONS == set()

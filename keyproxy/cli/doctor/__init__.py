"""`keyproxy doctor`: which claims hold on this host, each as one line.

Owns the flags and the exit code. Must not start or change anything, nor print a
secret; what is checked is in `checks.py` and its neighbours, in the order of `registry.py`.
"""

import argparse


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    text = "tell which claims hold on this host"
    parser = subparsers.add_parser(
        "doctor", help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False
    )
    parser.add_argument(
        "--upstream", action="store_true", help="send one real, paid request for each role through the running gateway"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from keyproxy.cli.doctor.examination import examine

    return examine(upstream=arguments.upstream, as_json=arguments.json)

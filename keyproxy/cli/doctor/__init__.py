"""`keyproxy doctor`: which claims hold on this host, each as one line.

Owns the flags, the order of the checks, the form of a line and the exit code. Must
not start or change anything, nor print a secret. A check is a function of what was
found beforehand (`verdict.Host`), in `machine`, `custody`, `books`, `running` or
`provider`; with --upstream, `rehearsal` has the running gateway make real calls, and with
--harbor, `container` starts a probe.
"""

import argparse

from keyproxy.cli.config import add_setting_flags


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="tell which claims hold on this host",
        description="Tell which claims hold on this host, for the settings that `keyproxy serve` has or would have. "
        "Exit 0 when none failed; warnings do not count.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--upstream", action="store_true", help="send one real, paid request for each role through the running gateway"
    )
    parser.add_argument(
        "--harbor", action="store_true", help="start one container as Harbor's trials are, and tell what it reaches"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    add_setting_flags(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from keyproxy.cli.config import setting_flags
    from keyproxy.cli.doctor.examination import examine

    return examine(
        setting_flags(arguments), upstream=arguments.upstream, harbor=arguments.harbor, as_json=arguments.json
    )

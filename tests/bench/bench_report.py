"""The benchmark's results as Markdown: every figure with its range, and beside it the ratio to nginx."""

from typing import Any

ROWS = (
    ("CPU µs/request, 4 kB", "saturation_4k", "cpu_us"),
    ("CPU µs/request, 100 kB", "saturation_100k", "cpu_us"),
    ("requests/s, 4 kB, one core", "saturation_4k", "rps"),
    ("added p50 µs, 200 ms provider", "latency_200ms", "added_p50_us"),
    ("kB/request in flight, 4 kB", "memory_4k", "kb_per_request"),
    ("kB/request in flight, 100 kB", "memory_100k", "kb_per_request"),
    ("in flight when measured, 4 kB", "memory_4k", "in_flight"),
    ("in flight when measured, 100 kB", "memory_100k", "in_flight"),
    ("idle MB", "memory_4k", "idle_mb"),
    ("SSE: p50 µs/event", "sse", "event_p50_us"),
    ("SSE: added p50 µs to first event", "sse", "first_p50_us"),
    ("SSE: CPU µs/event", "sse", "event_cpu_us"),
)
SEALED_ROWS = (
    ("acts/s, one core", "acts_per_second"),
    ("CPU µs/act", "cpu_us_per_act"),
    ("one trial alone: p50 ms/act", "alone_p50_ms"),
    ("one trial alone: p99 ms/act", "alone_p99_ms"),
    ("all at once: p50 ms/act", "at_once_p50_ms"),
    ("all at once: p99 ms/act", "at_once_p99_ms"),
    ("kB/trial, its connection included", "kb_per_trial"),
    ("idle MB", "idle_mb"),
)
NEVER_A_RATIO = ("rps", "in_flight")


def markdown(results: dict[str, Any]) -> str:
    summary = results["summary"]
    servers = list(dict.fromkeys(server for measurement in summary.values() for server in measurement))
    machine = results["machine"]
    about = (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_mb']} MB, Linux {machine['kernel']}, "
        f"Python {machine['python']}, load average {machine['load_average'][0]} before and "
        f"{machine['load_average_after'][0]} after; {results['scale']['rounds']} rounds, "
        f"{results['scale']['connections']} connections, {results['scale']['streams']} streams."
    )
    lines = [
        about,
        "Versions: " + ", ".join(f"{name} ({version})" for name, version in results["versions"].items()) + ".",
        "",
        "| measure | " + " | ".join(servers) + " |",
        "|---" * (len(servers) + 1) + "|",
    ]
    for title, measurement, figure in ROWS:
        by_server = summary.get(measurement, {})
        cells = [_cell(by_server, server, figure) for server in servers]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    lines += [f"\nLeft out: {name}, {why}." for name, why in results["left_out"].items()]
    lines += [f"\nFAILED: {failure}" for failure in results["failures"]]
    if results["scale"]["quick"]:
        lines.append("\nA quick run: it proves that the benchmark works and nothing about speed.")
    return "\n".join(lines)


def sealed_markdown(results: dict[str, Any]) -> str:
    """The sealed trials, in a table of their own: they have no rival."""
    found = results["summary"].get("sealed")
    if found is None:
        return ""
    machine = results["machine"]
    before, after = machine["load_average"][0], machine["load_average_after"][0]
    title = f"{results['scale']['trials']} sealed trials at once; load average {before} before and {after} after"
    lines = ["", f"| {title} | keyproxy |", "|---|---|"]
    return "\n".join([*lines, *(f"| {row} | {_cell(found, 'keyproxy', figure)} |" for row, figure in SEALED_ROWS)])


def _cell(by_server: dict[str, dict[str, list[float]]], server: str, figure: str) -> str:
    values = by_server.get(server, {}).get(figure)
    if values is None:
        return ""
    median, low, high = values
    text = f"{_number(median)} ({_number(low)}-{_number(high)})" if low != high else _number(median)
    nginx = by_server.get("nginx", {}).get(figure)
    if nginx and nginx[0] > 0 and figure not in NEVER_A_RATIO and server not in ("nginx", "direct"):
        text += f", {median / nginx[0]:.1f} x"
    return text


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"

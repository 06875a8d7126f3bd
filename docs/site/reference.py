"""Reference pages that are written from the code each time the site is built: commands, desk API, webhooks, metrics."""

import inspect
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from callkeeper.app.cli import main
from callkeeper.calls.metrics.snapshot import Present, Snapshot
from callkeeper.desk.openapi import document
from callkeeper.desk.prometheus_page import Everything

Json = Mapping[str, Any]


def commands() -> str:
    """Return a page with every command, its arguments and its options."""
    head = ["# Commands", "", "For the operator: what does each command do, and which options does it take?", ""]
    return "\n".join([*head, *_of_group(main, "callkeeper")])


def _of_group(group: click.Group, path: str) -> Iterator[str]:
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        full = f"{path} {name}"
        yield from (f"## {full}", "", _plain(command.help or ""), "")
        if isinstance(command, click.Group):
            yield from (line.replace("## ", "### ", 1) for line in _of_group(command, full))
        else:
            yield from _of_command(command, full)


def _of_command(command: click.Command, path: str) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    yield from ("```text", " ".join([path, *command.collect_usage_pieces(context)]), "```", "")
    records = [record for p in command.params if (record := p.get_help_record(context)) is not None]
    yield from (f"- `{names}`: {' '.join(_plain(text).split())}" for names, text in records if text)
    yield ""


def _plain(text: str) -> str:
    """Return help text as Markdown: no markers of click, angle brackets as text."""
    return inspect.cleandoc(text).replace("\b", "").replace("<", "&lt;").replace("[default", "\\[default").strip()


def desk_api() -> str:
    """Return a page with every operation and every shape of the desk API."""
    api = json.loads(document())
    lines = [
        "# Desk API",
        "",
        "For the developer of desk software: which operations and shapes are there? Written from the OpenAPI document.",
        "[Connect a desk](desk.md) explains how to use it.",
        "",
        "## Operations",
        "",
    ]
    for path, operations in api["paths"].items():
        for method, operation in operations.items():
            lines += [f"### {method.upper()} {path}", "", _sentence(operation), ""]
            lines += [*_parameters(operation.get("parameters", ()))]
            if body := operation.get("requestBody"):
                lines += [f"- body: {_content(body)}"]
            lines += [
                f"- answer {code}: {' '.join(answer.get('description', '').split())} {_content(answer)}"
                for code, answer in operation["responses"].items()
            ]
            lines.append("")
    lines += ["## Shapes", ""]
    for name, schema in api["components"]["schemas"].items():
        if not name.startswith(("Call", "Outcome", "Test")) or name == "CallView":
            lines += _shape(name, schema)
    return "\n".join(lines)


def webhooks() -> str:
    """Return a page with every webhook message, its example and its shape."""
    api = json.loads(document())
    lines = [
        "# Webhook messages",
        "",
        "For the developer of a receiver: what does each message look like? Written from the OpenAPI document.",
        "[Receive outcomes](webhooks.md) explains how to take them.",
        "",
    ]
    for name, hook in api["webhooks"].items():
        post = hook["post"]
        example = post["requestBody"]["content"]["application/json"].get("example")
        lines += [f"## {name}", "", _sentence(post), ""]
        if example is not None:
            lines += ["```json", json.dumps(example, indent=2), "```", ""]
    lines += ["## Shapes", ""]
    for name in ("OutcomeData", "TestData"):
        lines += _shape(name, api["components"]["schemas"][name])
    return "\n".join(lines)


def _sentence(operation: Json) -> str:
    parts = (operation.get("summary", ""), operation.get("description", ""))
    return " ".join(" ".join(part.split()).rstrip(".") + "." for part in parts if part)


def _parameters(parameters: Iterable[Json]) -> Iterator[str]:
    for parameter in parameters:
        need = "required" if parameter.get("required") else "optional"
        yield f"- `{parameter['name']}` ({parameter['in']}, {need}): {parameter.get('description', '')}"


def _content(part: Json) -> str:
    return " ".join(_type(each["schema"]) for each in part.get("content", {}).values() if "schema" in each)


def _shape(name: str, schema: Json) -> Iterator[str]:
    yield from (f"### {name}", "", " ".join(schema.get("description", "").split()), "")
    if "enum" in schema:
        yield from (f"- `{value}`" for value in schema["enum"])
    required = schema.get("required", ())
    for field, kind in schema.get("properties", {}).items():
        optional = "" if field in required else ", optional"
        yield f"- `{field}` ({_type(kind)}{optional}) {kind.get('description', '')}".rstrip()
    yield ""


def _type(schema: Json) -> str:
    """Return a schema's type in words, with a link to a shape."""
    if ref := schema.get("$ref"):
        name = str(ref).rpartition("/")[2]
        return f"[{name}](desk-api.md#{name.lower()})"
    if several := schema.get("anyOf"):
        return " or ".join(map(_type, several))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type", "any"))


def metrics() -> str:
    """Return a page with every metric."""
    lines = [
        "# Metrics",
        "",
        "For the engineer who builds dashboards: which metrics does `/metrics` export? [Monitoring](monitoring.md) explains",
        "how to scrape them.",
        "",
    ]
    nothing = Present(
        hinted=0,
        live=0,
        settled=0,
        overdue=0,
        late_s=0.0,
        attention=Counter(),
        is_service_away=False,
        institutions_away=0,
        service_failures=0,
        login_failures=0,
        jobs_waiting=0,
        jobs_failed=0,
        outcomes_waiting=0,
        archive_waiting=0,
        redis_memory=0,
        redis_memory_limit=0,
    )
    for metric in Everything(Snapshot(), nothing, (), ()).collect():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        labels = ", ".join(f"`{label}`" for label in getattr(metric, "_labelnames", ()))
        lines += [f"## {name}", "", f"{metric.documentation[0].upper()}{metric.documentation[1:]}.", ""]
        lines += [f"- type: {metric.type}", *([f"- labels: {labels}"] if labels else []), ""]
    return "\n".join(lines)

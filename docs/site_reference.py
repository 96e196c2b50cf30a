"""Writes the pages of reference of the site, each from the declarations in the code."""

import ast
import dataclasses
import inspect
import json
import re
import statistics
from pathlib import Path

import apache_beam as beam
import click
import numpy as np
import pyarrow as pa
from docutils import nodes

import beam_tfrecord as bt
from beam_tfrecord import errors
from beam_tfrecord.cli.main import cli
from beam_tfrecord.features import arrow_types, tf_columns
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.loading.values import array_of_column
from beam_tfrecord.options import GENERAL, GROUPS, Option
from beam_tfrecord.options.jobs import WRITE_OPTIONS, SelectOptions
from beam_tfrecord.options.sources import SOURCE_OPTIONS, ColumnsOption
from beam_tfrecord.sources.choose import SOURCES

PACKAGE = Path(bt.__file__).parent
RESULTS = PACKAGE.parent / "scripts" / "bench" / "results"
KEYWORDS = {option.flag: option for option in (*WRITE_OPTIONS, *SOURCE_OPTIONS)}


def escaped(text):
    """Return plain text as reStructuredText, with flags as code."""
    text = re.sub(r"([*`|\\])|(?<=\w)(_)(?!\w)", r"\\\1\2", text)
    return re.sub(r"(?<![\w-])(--(?:[a-z][a-z-]*)?)(?![\w-])", r"``\1``\\ ", text)


def heading(text, line="="):
    return f"{text}\n{line * len(text)}\n"


def title(text):
    return f"{heading(text)}\n"


def with_plurals(line):
    """Let a letter follow a name in backquotes, as in plurals."""
    return re.sub(r"(?<![`\w])`([^`]+)`(?=\w)", r"``\1``\ ", line)


def first_line(thing):
    return with_plurals(inspect.getdoc(thing).splitlines()[0])


def table(header, rows, widths="auto"):
    """Return a table of cells in reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in (header, *rows):
        lines += [f"{'     -' if number else '   * -'} {cell}" for number, cell in enumerate(row)]
    return "\n".join([*lines, "", ""])


def toctree(names):
    return "\n".join([".. toctree::", "   :hidden:", "", *(f"   {name}" for name in names), ""])


def commands():
    """Yield the page that lists the commands, and a page of each."""
    rows = [
        (f":doc:`{name} <commands/{name}>`", escaped(command.get_short_help_str(200)))
        for name, command in cli.commands.items()
    ]
    yield (
        "commands",
        (
            f"{title('Commands and their options')}"
            "One page for each command. For streams, exit codes and completion, see\n"
            ":doc:`the command line </command-line>`.\n\n"
            f"{table(('Command', 'Does'), rows, '15 85')}"
            f"{toctree(f'commands/{name}' for name in cli.commands)}"
        ),
    )
    for name, command in cli.commands.items():
        yield f"commands/{name}", command_page(name, command)


def command_page(name, command):
    """Return the page of a command: usage, help, and the options by subject."""
    context = click.Context(command, info_name=f"beam-tfrecord {name}")
    usage = command.get_usage(context).removeprefix("Usage: ")
    parts = [
        title(f"beam-tfrecord {name}"),
        f".. code-block:: text\n\n   {' '.join(usage.split())}\n",
    ]
    for paragraph in inspect.cleandoc(command.help).split("\n\n"):
        text, is_example, example = paragraph.partition("Example: ")
        code = f"\n\n.. code-block:: console\n\n   $ {example}" if is_example else ""
        parts.append(f"{escaped(text)}{code}\n")
    if name in ("write", "plan", "extract", "append", "schema"):
        parts.append(
            f"In Python, the options are keywords of :py:func:`beam_tfrecord.{name}`:\n"
            "``--shard-size`` is ``shard_size=``. Options with another keyword say so.\n"
        )
    parts.append(f".. program:: beam-tfrecord {name}\n")
    options = [one for one in command.get_params(context) if isinstance(one, click.Option)]
    for group in GROUPS:
        of_group = [one for one in options if getattr(one, "group", GENERAL) == group]
        if of_group:
            parts.append(heading(group, "-"))
            parts += [described(one, context) for one in of_group]
    return "\n".join(parts)


def described(option, context):
    """Return the description of a flag."""
    flags, text = option.get_help_record(context)
    known = KEYWORDS.get(option.opts[-1])
    python = python_of(known) if known else ""
    if python and python.rstrip("=") != known.flag.strip("-").replace("-", "_"):
        text = f"{text}  [Python: {python}]"
    text = escaped(re.sub(r" +\[([^\[\]]+)\]", r" (\1)", text))
    return f".. option:: {flags}\n\n   {text}\n"


def python_of(option):
    """Return an option as Python functions name it."""
    return f"{option.keyword}={'False' if option.form == 'off' else ''}"


def python():
    """Yield the page that lists the public names, and a page of each."""
    kinds = {"Functions": [], "Transforms of Beam": [], "Classes": []}
    for name in (name for name in bt.__all__ if name != "__version__"):
        value = getattr(bt, name)
        is_beam = inspect.isclass(value) and issubclass(value, beam.PTransform | beam.DoFn)
        kind = (
            "Transforms of Beam"
            if is_beam
            else "Classes"
            if inspect.isclass(value)
            else "Functions"
        )
        kinds[kind].append(name)
        yield f"python/{name}", python_page(name, value, with_methods=kind == "Classes")
    parts = [
        title("Python functions and classes"),
        "``import beam_tfrecord as bt`` is all they need.\n",
    ]
    for kind, names in kinds.items():
        rows = [(f":doc:`{name} <python/{name}>`", first_line(getattr(bt, name))) for name in names]
        parts += [
            heading(kind, "-"),
            table(("Name", "Does" if kind != "Classes" else "Is"), rows, "25 75"),
        ]
    names = [name for of_kind in kinds.values() for name in of_kind]
    yield "python", "\n".join([*parts, toctree(f"python/{name}" for name in names)])


def python_page(name, value, *, with_methods):
    directive = "autoclass" if inspect.isclass(value) else "autofunction"
    members = "   :members:\n" if with_methods else ""
    return f"{title(name)}.. {directive}:: beam_tfrecord.{name}\n{members}"


def sources():
    """Yield the page of the options of every kind of source."""
    general = {f.name for kind in (SelectOptions, ColumnsOption) for f in dataclasses.fields(kind)}
    parts = [
        title("Options of every source"),
        "The kind is the value of ``--from``, if the name of the input does not show it. All\n"
        "have ``--columns``, ``--filter``, ``--sample`` and ``--sample-seed``. An option without\n"
        "a flag is a keyword of Python alone.\n",
    ]
    for kind, source in SOURCES.items():
        suffixes = ", ".join(f"``{suffix}``" for suffix in sorted(source.suffixes))
        rows = []
        for field in dataclasses.fields(source):
            option = next(
                (o for o in getattr(field.type, "__metadata__", ()) if isinstance(o, Option)), None
            )
            if option is None or field.name in {"paths", *general}:
                continue
            flag = f"``{option.usage}``" if option.usage else ""
            keyword = f"``{field.name}=``"
            meaning = escaped(option.help if option.usage else option.doc or option.help)
            if option.choices and "one of" not in meaning.lower():
                meaning += f" *{', '.join(option.choices)}*"
            rows.append((flag, keyword, meaning.replace("\\`\\`", "``")))
        parts += [heading(kind, "-"), f"{suffixes}\n" if suffixes else ""]
        parts.append(
            table(("Flag", "Python", "Meaning"), rows, "25 20 55")
            if rows
            else "No options of its own.\n"
        )
    yield "sources", "\n".join(parts)


def types():
    """Yield the table of the types, from what the code does with each."""
    also = {}
    for alias, arrow in arrow_types._ALIASES.items():
        also.setdefault(arrow, []).append(alias)
    kinds = {tf_columns.INT64: "int64", tf_columns.FLOAT: "float", tf_columns.BYTES: "bytes"}
    widths = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    names = [
        *("bool", *widths, "halffloat", "float", "double", "decimal128(10, 2)"),
        *("string", "large_string", "binary", "large_binary", "fixed_size_binary[16]"),
        *("date32[day]", "date64[ms]", "time32[s]", "time64[us]", "duration[ms]"),
        *("timestamp[s]", "timestamp[us]", "timestamp[ns, tz=UTC]"),
    ]
    rows = []
    for name in names:
        arrow = arrow_types.type_from_json(name)
        (column,) = tf_columns.tf_columns(Feature("x", arrow))
        array = array_of_column(pa.array([None], arrow).slice(1), Feature("x", arrow))
        others = ", ".join(f"``{alias}``" for alias in also.get(arrow, []) if alias != name)
        rows.append((f"``{name}``", others, kinds[column.kind], f"``{array.dtype}``"))
    yield (
        "types",
        (
            f"{title('Names of types')}"
            "What ``--types``, schemas and ``schema`` name, and what becomes of each value.\n"
            "Rules, limits and nested types: :doc:`types </types>`.\n\n"
            f"{table(('Name', 'Also', 'In an Example', 'NumPy'), rows)}"
        ),
    )


def messages():
    """Return the messages of every class of errors, with … for what differs."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id
            if name and isinstance(getattr(errors, name, None), type) and node.args:
                text = text_of(node.args[0])
                if len(re.findall(r"[a-z]{2,}", text)) > 3:
                    found.setdefault(name, set()).add(" ".join(text.split()))
    return found


def text_of(node):
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    return str(node.value) if isinstance(node, ast.Constant) else "…"


def error_classes():
    """Yield the page of the errors and of their messages."""
    base, found = errors.BeamTFRecordError, messages()
    kinds = [
        kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, base)
    ]
    rows = [
        (
            f"``{kind.__name__}``",
            f"``{kind.__base__.__name__}``",
            str(kind.exit_code),
            first_line(kind),
        )
        for kind in kinds
    ]
    parts = [
        title("Errors and their messages"),
        "``beam_tfrecord.errors`` has these classes; the command exits with the code. A message\n"
        "says what happened, where, and after the colon what to do. ``…`` stands for your names\n"
        "and numbers. Messages of other programs: :doc:`troubleshooting </troubleshooting>`.\n",
        table(("Class", "Is a", "Exit code", "Means"), rows),
    ]
    for kind in kinds:
        texts = sorted(found.get(kind.__name__, ()), key=lambda text: text.strip("…'\" ").lower())
        if texts:
            parts += [heading(kind.__name__, "-"), *(f"- {escaped(text)}" for text in texts), ""]
    yield "errors", "\n".join(parts)


def figures():
    """Yield the page of all measured figures that are tables of cases."""
    parts = [
        title("Measured figures"),
        "Made from ``scripts/bench/results``. What they mean: :doc:`performance </performance>`.\n",
    ]
    for path in sorted(RESULTS.glob("*.json")) if RESULTS.exists() else ():
        found = json.loads(path.read_text("utf-8"))
        rows = list(rows_of(found))
        if rows:
            machine = found["machine"]
            versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
            parts += [
                heading(f"{path.stem[:10]}: {path.stem[18:]}", "-"),
                f"{machine['cores']} cores of {machine['cpu']}, {machine['system']}, Python\n"
                f"{machine['python']}; {versions}.\n",
                table(("Case", "Per second", "Peak memory"), rows, "60 20 20"),
            ]
    yield "figures", "\n".join(parts)


def rows_of(found):
    """Yield what was done, how fast and in how much memory, of the files that say so."""
    cases, labels = found.get("cases"), found.get("chart", {}).get("labels", {})
    for case in cases.values() if isinstance(cases, dict) else ():
        if speed := case.get("medians", {}).get("rows_per_second"):
            yield escaped(case["about"]), f"{speed:,.0f} rows", size(case["medians"]["peak_rss"])
        for way, of in case.get("ways", {}).items():
            if speed := of["rows_per_second"]["median"]:
                unit = case["unit"]
                yield (
                    f"{escaped(case['about'])}: {escaped(labels.get(way, way))}",
                    f"{speed:,.0f} {unit}",
                    size(max(np.atleast_1d(of["peak_pss"]))),
                )
    for kind, loaders in found.get("runs", {}).items() if "facts" in found else ():
        for name, runs in loaders.items():
            for at in range(max(len(run.get("epochs", ())) for run in runs)):
                epochs = [run["epochs"][at] for run in runs if len(run.get("epochs", ())) > at]
                speed = statistics.median(epoch["examples_per_s"] for epoch in epochs)
                peak = statistics.median(epoch["peak_bytes"] for epoch in epochs)
                yield (
                    f"{kind} by {name}, {epochs[0]['workers']} workers",
                    f"{speed:,.0f}",
                    size(peak),
                )


def size(number):
    return f"{number / 1e9:.2f} GB"


def write(source):
    """Write all pages that changed into site/reference."""
    folder = Path(source) / "site" / "reference"
    made = dict(
        page
        for part in (commands, python, sources, types, error_classes, figures)
        for page in part()
    )
    for name, text in made.items():
        path = folder / f"{name}.rst"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.rglob("*.rst"):
        if str(path.relative_to(folder))[:-4] not in made:
            path.unlink()


def write_for_models(app, exception):
    """Write llms.txt, the pages with their first sentences, and llms-full.txt, their text."""
    if exception or app.builder.format != "html":
        return
    lines, full = [f"# {app.config.project}", ""], []
    for name in sorted(app.env.found_docs, key=lambda name: (name.startswith("site/"), name)):
        doctree = app.env.get_doctree(name)
        own = (
            node
            for node in doctree.findall(nodes.paragraph)
            if isinstance(node.parent, nodes.section)
        )
        paragraph = next(own, None)
        words = " ".join(paragraph.astext().split()) if paragraph else ""
        sentence = re.match(r".*?[.:!?](?= |$)|.*", words)[0]
        suffix = Path(app.env.doc2path(name)).suffix
        link = f"_sources/{name}{suffix}.txt"
        lines.append(f"- [{app.env.titles[name].astext()}]({link}): {sentence}")
        if suffix == ".md":
            full.append(Path(app.env.doc2path(name)).read_text("utf-8"))
    Path(app.outdir, "llms.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    Path(app.outdir, "llms-full.txt").write_text("\n\n".join(full), encoding="utf-8")

"""`llama-index-gear`: the commands, their options, and how an error ends one.

Exit codes: 0, it is done; 1, it could not be done, or `check` found faults; 2, the command line is wrong.
"""

from __future__ import annotations

import gc
import shlex
import sys
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llama_index_gear.characters import count
from llama_index_gear.cli.extraction_options import ExtractionOptions, read_model, with_extraction
from llama_index_gear.cli.failures import explain_error
from llama_index_gear.cli.store_note import (
    EMBEDDING,
    StoreNote,
    choose_embedding,
    explain_no_store,
    holds_collections,
    read_note,
    renew_probe,
)
from llama_index_gear.errors import GeARError
from llama_index_gear.ingestion.console import escape_output, lend_stdout, show_fault, show_line, show_messages
from llama_index_gear.ingestion.reading_process import SECONDS

if TYPE_CHECKING:
    from llama_index_gear.cli.asking import Answer
    from llama_index_gear.cli.serving import StoreTools

_FOLDER = click.Path(file_okay=False, path_type=Path)
_READ_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)
_READ_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

_NEW_OBJECTS = 100_000  # between two collections: imports make a million objects that stay, a tenth of a start's time

Command = Callable[..., Any]


def _with_store(command: Command) -> Command:
    """Add the options of every command."""
    embed = click.option(
        "--embed",
        metavar="NAME_OR_DIR",
        help="Embedding model: of Hugging Face, or a folder. Default: the one that filled the store; for a new store "
        "all-MiniLM-L6-v2, which knows English. The store remembers it.",
    )
    store = click.option(
        "--store", "store_folder", type=_FOLDER, default="gear_store", show_default=True, help="Folder of the store."
    )
    return store(embed(command))


def _announce(store_folder: Path, embed: str | None, *, must_exist: bool = True, embeds: bool = True) -> Path:
    """Say on a terminal what is loaded, before the imports and the model that take seconds; return the store's folder.

    Args:
        store_folder: as on the command line.
        embed: the embedding model's name, if the command line gives one.
        must_exist: refuse a folder that isn't there. Default True.
        embeds: the embedding model is loaded. Default True.

    Raises:
        ClickException: there is no such folder, or its note can't be read.

    """
    folder = store_folder.expanduser()
    if must_exist and not folder.is_dir():
        raise explain_no_store(folder)
    note = read_note(folder)
    if sys.stderr.isatty():
        name = embed or (EMBEDDING if note is None else note.embed_model)
        click.echo(f"loading {Path(name).name} …" if embeds else f"opening {folder} …", err=True)
    return folder


def _join_words(context: click.Context, argument: click.Parameter, words: tuple[str, ...]) -> str | None:
    """Return a text of one argument; None if there is none.

    Raises:
        UsageError: it is empty, or was written without quotes.

    """
    if not words:
        return None
    text = " ".join(words)
    if not text.strip():
        raise click.MissingParameter(ctx=context, param=argument)
    if len(words) > 1:
        name = argument.human_readable_name.lower()
        raise click.UsageError(f'a {name} is one argument, put it in quotes: {context.command_path} "{text}"', context)
    return text


# "color" keeps click from taking escape sequences out of a text where there is no terminal: all are escaped.
@click.group(context_settings={"help_option_names": ["-h", "--help"], "color": True}, invoke_without_command=True)
@click.version_option(package_name="llama-index-gear", message="%(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """Ask a folder of files questions that no single passage answers."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@commands.command()
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@_with_store
@click.option(
    "--file-timeout",
    type=click.FloatRange(0, min_open=True),
    default=SECONDS,
    show_default=True,
    help="Seconds that a file may take to be read, if it is not plain text.",
)
@with_extraction
def index(folder: Path, store_folder: Path, embed: str | None, file_timeout: float, **extraction: Any) -> int:
    """Bring the store to what the files of DIR say now.

    Text and Markdown are read; PDF, Word, HTML and others with `pip install 'llama-index-gear[files]'`. A second run
    does only what has changed, deleted files too. Links between files are followed; those that lead nowhere are named.
    No language model is asked, unless --llm names one.
    """
    options = ExtractionOptions(**extraction).check()
    if folder.resolve().is_relative_to(store_folder.expanduser().resolve()):
        raise click.UsageError(
            f"--store {store_folder} is the folder of the files, or around it: give it one of its own"
        )
    store_folder = _announce(store_folder, embed, must_exist=False, embeds=not options.estimate)
    from llama_index_gear.cli.dead_links import show_links
    from llama_index_gear.cli.extracting import leave_folder, make_extractor, report_extraction, tell_paid
    from llama_index_gear.cli.indexing import plan_index
    from llama_index_gear.cli.store_folder import check_files, check_llm, fill_store, open_store

    extractor = make_extractor(options)

    check_store = partial(check_files, store_folder, folder)
    if options.estimate:
        with open_store(store_folder, embed, check=check_store, embeds=False) as store:
            click.echo(plan_index(store, folder, store_folder, extractor, file_timeout).estimate)
        return 0
    make_note = partial(StoreNote, files=str(folder.resolve()), llm=options.model)
    with fill_store(store_folder, embed, check_store, make_note) as store:
        check = partial(check_llm, store, store_folder, options.llm)
        if (note := read_note(store_folder)) is not None and note.llm:
            check()  # before files are read, too
        plan = plan_index(store, folder, store_folder, extractor, file_timeout, check)
        if (expected := plan.estimate) is not None:
            click.echo(f"to extract: {expected}", err=True)
        with leave_folder(store), tell_paid(extractor):
            report = plan.run()
    click.echo(
        f"{count(report.files, 'file')}, {count(report.passages, 'passage')}: {report.written} new or changed, "
        f"{report.deleted} deleted; {count(report.triples, 'triple')}, {report.embedded} of them embedded. "
        f'Ask them: llama-index-gear ask "…" --store {shlex.quote(str(store_folder))}'
    )
    show_links(report.links, report.dead_links)
    for name, reason in report.skipped.items():
        click.echo(f"skipped: {name}: {reason}", err=True)
    for name, reason in report.failed.items():
        click.echo(f"failed: {name}: {reason}", err=True)
    if report.unread:
        raise click.Abort
    return report_extraction(report.ledger, options) or (1 if report.failed else 0)


@commands.command()
@click.option("--collection", required=True, help="Name of the Qdrant collection. It is only read.")
@click.option("--url", help="Address of its server, http://localhost:6333; QDRANT_API_KEY may hold its key.")
@click.option("--path", type=_READ_FOLDER, help="In place of --url: folder of QdrantClient(path=…).")
@_with_store
@click.option("--text-key", default="text", show_default=True, help="Field of the text, if LlamaIndex wrote none.")
@click.option("--title-key", default="title", show_default=True, help="Field of the title; file_name of LlamaIndex.")
@click.option("--vector", "vector_name", help="Name of the dense vectors. Default: LlamaIndex's, or the only one.")
@click.option("--known-as", help="Where the collection was when the store was filled, if it has moved since.")
@with_extraction
def extract(
    collection: str,
    url: str | None,
    path: Path | None,
    store_folder: Path,
    embed: str | None,
    text_key: str,
    title_key: str,
    vector_name: str | None,
    known_as: str | None,
    **extraction: Any,
) -> int:
    """Give the passages of a Qdrant collection a graph.

    The store is filled with them, with the vectors that they have, and with triples. A second run does only what has
    changed. --embed names the model that made the vectors.
    """
    if (url is None) == (path is None):
        raise click.UsageError("where is the collection? Give either --url or --path")
    options = ExtractionOptions(**extraction).check()
    store_folder = _announce(store_folder, embed, must_exist=False, embeds=not options.estimate)
    from llama_index_gear.cli.extracting import extract_collection, open_collection, report_extraction
    from llama_index_gear.extraction.accounting import ExtractionEstimate

    with open_collection(
        collection, url, path, text_key=text_key, title_key=title_key, vector_name=vector_name, place=known_as
    ) as theirs:
        report = extract_collection(theirs, collection, store_folder, embed, options)
    if isinstance(report, ExtractionEstimate):
        click.echo(report)
        return 0
    click.echo(f'{report}. Ask them: llama-index-gear ask "…" --store {shlex.quote(str(store_folder))}')
    return report_extraction(report.ledger, options)


@commands.command()
@click.argument("question", nargs=-1, metavar="QUESTION", callback=_join_words)
@_with_store
@click.option("--top-k", type=click.IntRange(1), default=5, show_default=True, help="Passages to return.")
@click.option("--weights", "weights_file", type=_READ_FILE, help="Weights of the ranking, from `compare --fit`.")
@click.option(
    "--llm",
    callback=read_model,
    help="A model with OpenAI's protocol (OPENAI_API_KEY, OPENAI_BASE_URL), ollama/NAME (OLLAMA_HOST), or none. "
    "Default: OLLAMA_MODEL; else OPENAI_MODEL or gpt-4o-mini, if OPENAI_API_KEY or OPENAI_BASE_URL is set; else none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", "page", type=_FILE, help="Write the agent's search as a page. Needs a model.")
def ask(
    question: str | None,
    store_folder: Path,
    embed: str | None,
    top_k: int,
    weights_file: Path | None,
    llm: str | None,
    as_json: bool,
    page: Path | None,
) -> int:
    """Find the passages that answer QUESTION, and the triples that lead to each.

    With a language model an agent searches, notes facts, searches again, and answers with citations. Without QUESTION,
    questions are read from the keyboard, or a line each from a pipe: the model is loaded once.
    """
    if question is None and page is not None:
        raise click.UsageError("--html shows the search of one question: give it on the command line")
    store_folder = _announce(store_folder, embed, must_exist=page is None)
    from llama_index_gear.cli import asking
    from llama_index_gear.cli.models import open_llm
    from llama_index_gear.cli.store_folder import load_once, open_store

    model = open_llm(llm)
    if page is not None and model is None:
        raise click.UsageError(
            "--html shows an agent's search, which needs a model: set OPENAI_API_KEY, or give --llm; a page that needs "
            "none is `graph NAME`"
        )
    weights = None if weights_file is None else asking.load_weights(weights_file)
    load = load_once()

    def answer(asked: str) -> asking.Answer:
        with open_store(store_folder, embed, load=load) as store:
            if model is None:
                return asking.find_passages(store, asked, top_k, weights)
            show = (lambda line: None) if as_json else click.echo
            return asking.ask_agent(store, asked, model, top_k=top_k, weights=weights, show=show)

    if question is None:  # the store is open for each question: others may have it while nothing is asked
        with open_store(store_folder, embed, load=load):
            pass  # what is wrong is said first
        return _answer_each(answer, as_json=as_json)
    answered = answer(question)
    if as_json:
        click.echo(answered.to_json())
    else:
        asking.show_answer(answered)
    if page is not None and answered.trace is not None:
        click.echo(f"The search as a page: {answered.trace.to_html(page)}", err=as_json)
    return 1 if answered.is_missing else 0


def _answer_each(answer: Callable[[str], Answer], *, as_json: bool) -> int:
    """Answer the questions that are typed or piped in; return 1 if one could not be answered, else 0."""
    from llama_index_gear.cli.asking import read_questions, show_answer

    code = 0
    for question in read_questions():
        if not as_json and not sys.stdin.isatty():
            click.echo(f"? {question}")
        try:
            answered = answer(question)
        except Exception as error:
            message = explain_error(error)
            if message is None:
                raise
            code = _fail(message)
            continue
        if as_json:
            click.echo(answered.to_json(indent=None))
        else:
            show_answer(answered)
        code = 1 if answered.is_missing else code
    return code


@commands.command()
@click.argument("questions", type=_READ_FILE)
@_with_store
@click.option("--fit", "weights_file", type=_FILE, help="Learn the ranking's weights from the questions; write them.")
def compare(questions: Path, store_folder: Path, embed: str | None, weights_file: Path | None) -> None:
    """Say what the graph is worth on your own QUESTIONS.

    QUESTIONS is a JSON list, or a JSON object a line: {"question": "…", "gold_ids": ["file.txt"]}. gold_ids names the
    files or passages that the answer needs. It may be missing: then the lists are shown side by side.
    """
    store_folder = _announce(store_folder, embed)
    from llama_index_gear.cli import comparing
    from llama_index_gear.cli.store_folder import open_store

    asked = comparing.read_questions(questions)
    with open_store(store_folder, embed) as store:
        comparing.show_comparison(comparing.compare(store, asked))
        if weights_file is not None:
            fit = comparing.learn_weights(store, asked)
            fit.weights.save(weights_file)
            comparing.show_fit(fit, weights_file)


@commands.command()
@click.argument("name", nargs=-1, required=True, metavar="NAME", callback=_join_words)
@_with_store
@click.option("--html", "page", type=_FILE, default="gear_graph.html", show_default=True, help="The page.")
def graph(name: str, store_folder: Path, embed: str | None, page: Path) -> None:
    """Write a page of the graph around the entity NAME, to be walked by clicks."""
    store_folder = _announce(store_folder, embed, embeds=False)
    from llama_index_gear.cli.store_folder import open_store

    with open_store(store_folder, embed, embeds=False) as store:
        click.echo(f"The graph as a page: {store.to_html(page, name)}")


@commands.command()
@_with_store
def check(store_folder: Path, embed: str | None) -> int:
    """Look for what killed runs, other programs or another embedding model left behind. Nothing is changed.

    Links between the files that lead nowhere are named; they are no faults of the store.
    """
    store_folder = _announce(store_folder, embed)
    from llama_index_gear.cli.dead_links import check_links, show_links
    from llama_index_gear.cli.store_folder import open_store

    with open_store(store_folder, embed, compares=False) as store:
        report = store.check()
        click.echo(report)
        if report.ok:  # else passages may be unreadable
            show_links(*check_links(store, store_folder))
    return 0 if report.ok else 1


@commands.command()
@_with_store
@click.option("--reembed", is_flag=True, help="Make all embeddings again.")
def repair(store_folder: Path, embed: str | None, reembed: bool) -> int:
    """Mend what `check` finds."""
    store_folder = _announce(store_folder, embed)
    from llama_index_gear.cli.store_folder import open_store

    with open_store(store_folder, embed, compares=False) as store:
        report = store.repair(reembed=reembed)
        if reembed:
            renew_probe(store_folder, store.embed_model)
    click.echo(report)
    return 0 if report.ok else 1


@commands.command()
@_with_store
@click.option(
    "--llm",
    callback=read_model,
    help="The model of the tool `ask`, as in `ask --llm`. Without a model there is no such tool.",
)
@click.option("--write", is_flag=True, help="Serve `add` and `delete` too. Without it nothing can be changed.")
@click.option("--tenant", metavar="FIELD=NAME", help="Bind all tools to a tenant: the metadata field, and its value.")
def mcp(store_folder: Path, embed: str | None, llm: str | None, write: bool, tenant: str | None) -> None:
    """Serve the store to a program with a model (Claude, an editor, …), by the Model Context Protocol over stdio.

    Its tools are `search` and `explain`, with a model `ask`, with --write `add` and `delete`.
    """
    with redirect_stdout(sys.stderr):  # stdout is the protocol's
        server = _prepare_server(store_folder, embed, llm, write=write, tenant=tenant)
    if sys.stdin.isatty():
        click.echo("serving over stdin and stdout, for a program that starts this command; Ctrl-C ends it", err=True)
    with suppress(KeyboardInterrupt, CancelledError), lend_stdout():
        server.run()


def _prepare_server(store_folder: Path, embed: str | None, llm: str | None, *, write: bool, tenant: str | None) -> Any:
    """Return a server of the store's tools.

    Raises:
        UsageError: `tenant` is no FIELD=NAME.
        ClickException: there is no store, or a model is not to be had.
        GeARError: the SDK is missing.

    """
    try:
        from llama_index_gear.cli.mcp_server import build_server
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "mcp":
            raise
        raise GeARError("the server needs the MCP SDK 2: pip install 'llama-index-gear[mcp]'") from error
    from llama_index_gear.cli.models import choose_llm

    field, _, name = (tenant or "").partition("=")
    if tenant is not None and not (field and name):
        raise click.UsageError(f"--tenant {tenant}: write the metadata field and the tenant's name, customer=acme")
    store_folder = store_folder.expanduser()
    if not holds_collections(store_folder):
        raise explain_no_store(store_folder)
    choose_embedding(store_folder, embed)
    make_llm = choose_llm(llm)

    def make_tools() -> StoreTools:
        from llama_index_gear.cli.serving import StoreTools

        model = None if make_llm is None else make_llm()
        return StoreTools(store_folder, embed, model, (field, name) if tenant else None)

    return build_server(make_tools, asks=make_llm is not None, write=write)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code.

    Args:
        arguments: of the command line. Default: those of the process.

    """
    if arguments is None:  # this process is the command's
        gc.set_threshold(_NEW_OBJECTS)
    with escape_output(), show_messages():
        try:
            return commands.main(arguments and list(arguments), "llama-index-gear", standalone_mode=False) or 0
        except click.UsageError as error:
            return _fail(f"{error.format_message()} (llama-index-gear {_get_command(error)}--help says more)", 2)
        except click.Abort:
            return _fail("stopped; repeat the command, and it does what is left")
        except Exception as error:
            message = explain_error(error)
            if message is None:
                sys.excepthook = show_fault
                raise
            return _fail(message)


def _get_command(error: click.UsageError) -> str:
    name = error.ctx.info_name if error.ctx is not None and error.ctx.parent is not None else None
    return f"{name} " if name else ""


def _fail(message: str, code: int = 1) -> int:
    """Print an error as one line."""
    show_line(f"error: {message}")
    return code

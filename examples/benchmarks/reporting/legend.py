"""The report's legend: the notes that hold for every table."""

from __future__ import annotations

from reporting import papers
from reporting.results import LLM_FILE, NONE, Results, format_recalls
from reporting.tables import table

MODELS = {
    "none": NONE,
    "own": "stand-in",
    "recorded": "recorded",
}
TRIPLES = {"file": "GPT-3.5's", "offline": "by rule", "llm": "the reader's", "none": ""}


def legend(results: Results) -> str:
    """Explain the figures, bases, cuts, models and set-ups of the whole report."""
    notes = [
        '**Figures.** "R@5 / 10 / 15" is recall@5, @10 and @15 in percent. "–": the paper doesn\'t print it, or it was '
        "not run here.",
        "**Beyond chance.** p < 0.05 by an exact paired permutation test, after Holm's correction over all comparisons "
        "of a file. A star marks a setting that differs so from the default at one cut or more. ± is half of a 95 % "
        "interval of one method's R@10; it says nothing of the difference between two methods.",
        "**Bases.** BM25, dense, and hybrid, which fuses the two.",
        "**Methods.** NaiveGE walks the graph from the base's passages, SyncGE from the facts that a reader notes in "
        "them. GeAR is the agent; with a recorded reader it makes one step with one call. Chains are scored by "
        "`novelty`, the default, unless a row says otherwise. HippoRAG is HippoRAG 2's PageRank over the same triples, "
        "written from its paper. The HippoRAG of GeAR's paper is the first one, whose model names the question's "
        "entities.",
        explain_cuts(results),
        "**Models.** mpnet is all-mpnet-base-v2, minilm is all-MiniLM-L6-v2. A recorded reader is a strong model. It "
        "was asked once, about the ten passages that hybrid retrieval with minilm finds; its notes are given to every "
        "base. A stand-in reader takes the five triples of hybrid's ten passages that resemble the question most. "
        "The reader Qwen runs in 4 bits.",
        "**Answers.** Read from the first five passages, with one prompt for all methods; T²RAG answers from what it "
        "resolved. F1 follows HotpotQA's script on MuSiQue too: yes, no and noanswer score only if both sides say the "
        "same. A small model's answers say more about itself than about the methods.",
        "**Corpora.** HotpotQA's documents are the same as GeAR's (HippoRAG's); the paper cuts them into more "
        "passages. Of its 1,000 questions 944 are different; ours count each once. Our MuSiQue is a far smaller corpus "
        "than the papers': compare differences between methods, not recalls.",
        "**Ties.** Passages of equal score come in the engine's order. A store that is filled anew may have another "
        "order: single rows then move by a passage of one question.",
        f"**GeAR's set-up.** {papers.G_SETUP}",
        f"**T²RAG's set-up.** {papers.T_SETUP}",
    ]
    return "## Legend\n\n" + "\n".join(f"- {line}" for line in notes) + "\n\n" + set_ups_table(results)


def explain_cuts(results: Results) -> str:
    """Explain how long the lists are that R@5 is taken of, and how much that matters."""
    cut = results.of_steps(LLM_FILE, "hybrid+ircot", 1)
    alone = format_recalls(results.row(LLM_FILE, "hybrid"))
    worth = f" In `{LLM_FILE}` hybrid's list of ten, cut, has {format_recalls(cut)}; hybrid itself has {alone}."
    return (
        "**Cuts.** GeAR, IRCoT, T²RAG and HippoRAG make one list for all cuts. Other methods ask their base for as "
        "many passages as the cut: a short list fuses otherwise than a long list's beginning." + worth * bool(cut)
    )


def set_ups_table(results: Results) -> str:
    """Return a table of the files' set-ups."""
    rows = []
    for file, content in results.files.items():
        if "methods" not in content:
            continue
        have = content["conditions"]
        rows.append(
            [
                f"`{file}`",
                str(have["questions"]),
                f"{have['passages']:,}",
                f"{have['triples']:,} {TRIPLES[have['triples_from']]}",
                have["embed"],
                have["scorer"] if results.walks(file) else NONE,
                MODELS.get(have["llm"], have["llm"]),
                str(have.get("max_steps") or NONE),
                f"{results.half_width(file):.1f}",
            ]
        )
    head = [
        "file",
        "questions",
        "passages",
        "triples",
        "embeddings",
        "chains scored by",
        "reader",
        "steps at most",
        "±",
    ]
    return table(head, rows) + "\n" if rows else ""

"""Figures that the papers publish, for `report.py`, which prints all of them.

G is "GeAR: Graph-enhanced Agent for Retrieval-augmented Generation" (Shen et al. 2024, ACL version), T is "Beyond
Chunks and Graphs: Retrieval-Augmented Generation through Triplet-Driven Thinking" (T²RAG). Recalls are R@5, R@10,
R@15. The tables leave out the data on which nothing of ours is measured (2WikiMultiHopQA, PopQA, Story, Medical, and
HotpotQA except in G's Table 2), the methods that are not run here (ColBERTv2 and IRCoT over it, RAPTOR), and T's rows
of Gemini 2.5 Flash.
"""

from __future__ import annotations

Recalls = tuple[float, float, float]

G_SIZES = {
    "MuSiQue": "500 questions, 148,793 passages",
    "HotpotQA": "1,000 questions, 10,293 passages",
}
G_TRIPLES = {"MuSiQue": 1_521_136, "HotpotQA": 122_492}  # of GPT-4o mini
G_SETUP = (
    "BM25 and all-mpnet-base-v2 in Elasticsearch. Chains are scored by the cosine of their embedded text "
    "(`scorer=exact`). GPT-4o mini extracts, reads, reasons and answers; in Table 7 GPT-3.5 turbo does. At most 4 "
    "steps (HotpotQA 2). "
    + " ".join(f"{data}: {sizes}, {G_TRIPLES[data]:,} triples." for data, sizes in G_SIZES.items())
)
T_SETUP = (
    "1,000 questions; MuSiQue 11,656 passages; NV-Embed-v2; GPT-4o-mini; k = 5, 3 rounds. Its calls count retrievals "
    "too."
)

G_TABLE_2: dict[str, dict[str, Recalls]] = {
    "BM25": {"MuSiQue": (33.8, 38.5, 41.3), "HotpotQA": (74.2, 83.6, 86.3)},
    "BM25 + NaiveGE": {"MuSiQue": (37.5, 45.5, 48.4), "HotpotQA": (79.1, 89.1, 91.9)},
    "BM25 + SyncGE": {"MuSiQue": (44.7, 52.6, 57.4), "HotpotQA": (87.4, 93.0, 94.0)},
    "dense": {"MuSiQue": (31.1, 37.9, 41.6), "HotpotQA": (72.1, 79.3, 84.0)},
    "dense + NaiveGE": {"MuSiQue": (32.2, 41.4, 45.4), "HotpotQA": (76.1, 84.7, 88.8)},
    "dense + SyncGE": {"MuSiQue": (41.6, 51.3, 54.2), "HotpotQA": (84.1, 89.6, 92.8)},
    "hybrid": {"MuSiQue": (39.9, 46.3, 49.1), "HotpotQA": (77.8, 85.8, 89.7)},
    "hybrid + NaiveGE": {"MuSiQue": (41.8, 49.4, 53.0), "HotpotQA": (80.6, 89.4, 92.7)},
    "hybrid + SyncGE": {"MuSiQue": (48.7, 57.7, 61.2), "HotpotQA": (87.4, 93.3, 95.2)},
    "GeAR": {"MuSiQue": (58.4, 67.6, 71.5), "HotpotQA": (93.4, 96.8, 97.3)},
    "HippoRAG": {"MuSiQue": (41.0, 47.0, 51.4), "HotpotQA": (79.8, 89.0, 92.4)},
    "IRCoT (BM25)": {"MuSiQue": (46.1, 54.9, 57.9), "HotpotQA": (87.0, 92.6, 92.9)},
    "HippoRAG + IRCoT": {"MuSiQue": (48.8, 54.5, 58.9), "HotpotQA": (90.1, 94.7, 95.9)},
}

G_TABLE_3 = {  # exact match, F1 on MuSiQue
    "no passages": (2.6, 12.5),
    "gold passages": (36.6, 59.2),
    "hybrid + SyncGE": (14.0, 27.1),
    "HippoRAG": (8.2, 18.2),
    "IRCoT (BM25)": (7.6, 15.9),
    "HippoRAG + IRCoT": (14.2, 25.9),
    "GeAR": (19.0, 35.6),
}

G_TABLE_4: dict[str, Recalls] = {  # hybrid + SyncGE, MuSiQue; Table 10's rows of GPT-4o mini are the same
    "with diversity": (48.7, 57.7, 61.2),
    "without": (47.0, 53.9, 58.4),
}
G_TABLE_10: dict[str, Recalls] = {  # MuSiQue, Llama-3.1-8B-Instruct reads
    "with diversity": (46.2, 54.3, 57.4),
    "without": (44.9, 52.7, 55.0),
}

G_TABLE_7: dict[str, Recalls] = {  # MuSiQue, gpt-3.5-turbo-1106 for everything
    "hybrid + SyncGE": (48.3, 55.0, 58.1),
    "HippoRAG + IRCoT": (45.5, 51.0, 54.8),
    "GeAR": (52.9, 62.1, 64.4),
}

G_TABLE_8: dict[int, tuple[Recalls, Recalls, Recalls, Recalls]] = {  # beam length → at most 1, 2, 3, 4 steps; MuSiQue
    2: ((58.1, 66.0, 69.5), (59.2, 68.9, 71.3), (57.9, 68.0, 71.5), (58.4, 67.6, 71.5)),
    3: ((55.9, 64.6, 67.9), (57.2, 66.6, 70.2), (58.1, 67.8, 71.0), (56.7, 66.1, 70.4)),
    4: ((54.9, 62.9, 67.3), (56.6, 66.3, 69.3), (58.1, 67.9, 71.0), (56.1, 66.1, 69.9)),
}

G_TABLE_11: dict[str, tuple[float, float, float, float]] = {  # R@15 on MuSiQue by triples a gold passage
    "hybrid + NaiveGE": (50.6, 54.6, 54.1, 50.0),
    "hybrid + SyncGE": (62.8, 61.2, 59.8, 60.1),
    "HippoRAG + IRCoT": (64.4, 65.5, 55.0, 52.8),
    "GeAR": (73.6, 73.7, 69.3, 69.7),
}

T_TABLE_1 = {  # exact match, F1 on MuSiQue with GPT-4o-mini
    "no passages": (10.2, 20.3),
    "BM25": (15.3, 21.1),
    "dense": (31.2, 44.3),
    "HippoRAG 2": (34.1, 48.1),
    "IRCoT": (34.1, 47.6),
    "T²RAG": (34.3, 45.6),
}

T_TABLE_4 = {  # exact match, F1 on MuSiQue by hops
    "HippoRAG 2": {"2": (43.82, 58.79), "3": (27.22, 41.90), "4": (22.29, 31.14)},
    "IRCoT": {"2": (33.20, 43.12), "3": (22.78, 31.81), "4": (7.83, 13.22)},
    "T²RAG": {"2": (48.46, 60.81), "3": (31.33, 42.50), "4": (14.46, 24.46)},
}

T_TABLE_5 = {  # exact match, F1, calls of 1,000 questions; MuSiQue
    "triples": (35.2, 47.2, 3522),
    "passages": (10.4, 18.2, 1993),
}

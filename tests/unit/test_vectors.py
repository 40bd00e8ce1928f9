"""The scores that `python -m bench vectors` compares."""

import numpy as np

from bench import vectors


def test_a_block_is_found_by_its_own_words_in_every_way() -> None:
    texts = ["the lamp is lit in the hall", "a boat lies in the harbour", "the harbour has a lamp and a boat"]
    queries = ["who lit the lamp in the hall", "a boat that lies in the harbour", "a harbour with a lamp and a boat"]
    for name, scores in vectors.methods(queries, texts).items():
        assert scores.shape == (3, 3), name
        assert vectors.own_ranks(scores) == [0, 0, 0], name


def test_ranks_count_equal_scores_and_add_up() -> None:
    scores = np.array([[0.5, 0.5, 0.1], [0.2, 0.9, 0.3], [0.0, 0.0, 0.0]])
    assert vectors.own_ranks(scores) == [1, 0, 2]
    both = vectors.fused([scores, scores])
    assert both[1].argmax() == 1
    assert both[1][1] == 2 / (vectors.RANK_OFFSET + 1)

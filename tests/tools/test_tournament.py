"""The tournament of tic-tac-toe: a game counts only if its moves win when they are played again."""

from bootstraps.tournament_server import Pairing, beaten, extends, result, results
from tests.support.live_task import LiveTask, live_task


def best_moves(pairing: Pairing, moves: list[int]) -> list[int]:
    """Moves that continue these and win the game, or draw it if it can't be won."""
    drawn: list[int] = []
    open_lines = [moves]
    while open_lines:
        line = open_lines.pop()
        match result(pairing, line):
            case "won":
                return line
            case "drawn":
                drawn = line
            case None:
                open_lines += [[*line, cell] for cell in range(9) if cell not in line]
    return drawn


def pairings_of(task: LiveTask) -> list[Pairing]:
    return [Pairing(*one) for one in task.act("return [[one.opponent, one.first, one.seed] for one in pairings]")]


def test_a_tournament_counts_the_games_that_are_really_won() -> None:
    with live_task("tictactoe_tournament.py", rounds=1) as task:
        pairings = pairings_of(task)
        assert [one.opponent for one in pairings] == ["random", "eager", "wary", "basic", "minimax"]
        lines = [best_moves(pairing, [4] if number == 0 else []) for number, pairing in enumerate(pairings)]
        task.act(f"for cell in {lines[0][1:]}:\n    move(cell)")
        first = task.graded()
        assert (first["one_is_beaten"], first["half_are_beaten"], first["is_over"]) == (True, False, False)
        assert "random: 1 won, 0 drawn, 0 lost, 0 to play; beaten" in task.views()["Table"]
        task.act(f"for line in {lines[1:]}:\n    next_game()\n    for cell in line:\n        move(cell)")
        assert task.graded() == dict.fromkeys(first, True)
        assert "Beaten so far: 4 of 5." in task.views()["Table"]
        returned = (
            "self.return_to_caller({'beaten': len(beaten(results(pairings, moves)))})\nreturn is_last_game_over()"
        )
        assert task.act(returned) is True


def test_a_tournament_can_be_neither_forged_nor_played_again() -> None:
    with live_task("tictactoe_tournament.py", rounds=1, opponents=["random", "basic"]) as task:
        [first, second] = pairings_of(task)
        task.act("next_game()")
        assert task.graded() == {
            "is_over": False, "one_is_beaten": False, "half_are_beaten": False, "all_are_beaten": False,
            "none_beats_us": False, "record_is_kept": True,
        }  # fmt: skip
        better = [best_moves(first, [4]), best_moves(second, [])]
        task.act(f"moves[:] = {better}")
        forged = task.graded()
        assert forged["record_is_kept"] is forged["one_is_beaten"] is False
        assert task.graded()["record_is_kept"] is False, "what was taken back once stays taken back"


def test_results_of_moves_against_the_rules() -> None:
    pairings = [Pairing("random", True, 1), Pairing("minimax", False, 2)]
    assert results(pairings, [[9], []]) == [("random", "lost"), ("minimax", None)]
    assert results(pairings, "nonsense") == results(pairings, []) == []
    assert results(pairings, [["4"], {"a": 1}, [], []]) == [("random", "lost"), ("minimax", "lost")]
    won = best_moves(pairings[0], [])
    assert beaten(results(pairings, [won])) == ["random"]
    assert extends([[4, 1], [2]], [[4, 1]])
    assert extends([[4, 1]], [[4]])
    assert not extends([[4], [2]], [[4], [1]])
    assert not extends([[4]], [[4, 1]])
    assert not extends([5], [[4]])

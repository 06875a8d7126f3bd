"""The example of a test in a browser that tests/README.md shows."""

from playwright.sync_api import expect

from tests.harness.browser import Stage, line


def test_call_is_a_line_of_the_board(stage: Stage) -> None:
    """A call that is started on the sandbox's page is on the board, and leads to its own page."""
    voice_id = stage.start(stage.sandbox(), "nothing")
    board = stage.board()
    expect(line(board, voice_id)).to_contain_text("Watching")
    line(board, voice_id).locator("a").click()
    expect(board.locator("#story")).to_be_visible()

"""The board: the page that people leave open, and a page for each call. Kept live by the stream of changes."""

"""The board: the page that people leave open, and a page for each call. Rendered here, kept live by the stream of changes."""

"""The board: an overview page that stays open, and a page for each call. The stream of changes updates both."""

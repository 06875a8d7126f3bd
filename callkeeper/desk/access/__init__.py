"""Access to the desk and the board: people who log in, software with tokens, and the rights of both."""

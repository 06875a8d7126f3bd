"""Who may use the desk and the board: people who log in, software with a token, and the rights of each."""

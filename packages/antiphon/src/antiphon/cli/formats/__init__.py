"""`antiphon convert`, `check` and `repair`: bodies of the API formats from files or standard input."""

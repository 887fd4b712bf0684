"""How the page of the chat holds up in a browser."""

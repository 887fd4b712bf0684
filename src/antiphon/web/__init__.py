"""The chat in a browser: a page, and the small API it talks to. `serving` brings both up."""

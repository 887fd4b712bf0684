"""The chat in a browser: a page, and the small API it talks to. `serve_app` brings both up."""

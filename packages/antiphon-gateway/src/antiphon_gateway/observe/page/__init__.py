"""The status page as HTML: its sections, texts, style and charts."""

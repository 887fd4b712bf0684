"""`search_tool`: one tool, `search_web`, over what there is to search.

Three sources, and the result always says which one it was, for a model that takes a folder of notes for the web tells its
user nonsense:

- the web, through Tavily, with a key;
- a folder of documents of the user's, without;
- with neither, the short guide that comes with this package, so that a first conversation finds something.

What is said explicitly counts before the environment: a key, then a folder, then the key in TAVILY_API_KEY, then the guide.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from antiphon.errors import DocumentsUnreadable, StoreError, StoreLocked, ToolError
from antiphon.providers.transport.request import Transport
from antiphon.tools.builtin.document_index import DocumentIndex, FoundDocuments, asked_words
from antiphon.tools.builtin.tavily import TAVILY_URL, Tavily
from antiphon.tools.tool import Tool, tool

_GUIDE = Path(__file__).with_name("guide")
_QUERY_LENGTH = 400
_REMEMBERED = 600.0

_Query = Annotated[str, Meta(description="What to look for: a few words, or a short question")]
_MaxResults = Annotated[int, Meta(description="How many results at most", ge=1, le=20)]


class SearchResult(Struct, frozen=True):
    """A place where something was found."""

    title: str
    source: str
    excerpt: str


def search_tool(
    folder: str | os.PathLike[str] | None = None,
    key: str | None = None,
    *,
    index: str | os.PathLike[str] = ":memory:",
    base_url: str = TAVILY_URL,
    transport: Transport | None = None,
) -> Tool:
    """The tool `search_web` over the web (with a Tavily `key`), a `folder` of documents, or the guide that comes along.

    `index` is a file to keep the folder's index in. A `transport` that is given stays open; it is closed by whoever made it.
    """
    if key is None and folder is None:
        key = os.environ.get("TAVILY_API_KEY")
    if key and key.strip():
        return _web_search(Tavily(key.strip(), base_url=base_url, transport=transport))
    if folder is None:
        return _document_search(
            DocumentIndex(_GUIDE),
            "Search a short built-in guide (studying, IELTS, travel, Antiphon); no web search is set up. Returns excerpts.",
            "Antiphon's own short guide, not the web: {documents}",
            "built-in guide, ",
            " For the web set TAVILY_API_KEY; a folder of documents can be searched too.",
        )
    return _document_search(
        DocumentIndex(folder, index),
        "Search the user's own documents; there is no access to the web. Returns titles, file names and excerpts.",
        "Local documents, not the web: {documents}",
        "",
    )


def _web_search(tavily: Tavily) -> Tool:
    @tool(effect="read", lax=True, retries=1, cache_seconds=_REMEMBERED, timeout=45.0)
    async def search_web(query: _Query, max_results: _MaxResults = 5) -> str:
        """Search the web. Returns titles, addresses and excerpts of the pages found; name the addresses you rely on."""
        asked = _checked(query)
        pages = await tavily.search(asked, max_results)
        return _told(
            f'The web (searched by Tavily) for "{asked}".',
            [SearchResult(page.title or page.url, page.url, page.content or "") for page in pages[:max_results]],
        )

    return search_web


def _document_search(index: DocumentIndex, description: str, place: str, source: str, hint: str = "") -> Tool:
    @tool(description=description, effect="read", lax=True)
    def search_web(query: _Query, max_results: _MaxResults = 5) -> str:
        asked = _checked(query)
        found = _looked_up(index, asked, max_results)
        documents = "1 document" if found.searched == 1 else f"{found.searched} documents"
        return _told(
            f'{place.format(documents=documents)}, searched for "{asked}".{hint}',
            [SearchResult(hit.title, source + hit.path, hit.excerpt) for hit in found.found],
            has_all_words=any(hit.has_all_words for hit in found.found),
        )

    return search_web


def _checked(query: str) -> str:
    """The query on one line. Refuses what cannot be looked for, in words for the model."""
    asked = " ".join(query.split())
    if not asked:
        raise ToolError("query is empty; say what to look for", retry=False)
    if len(asked) > _QUERY_LENGTH:
        raise ToolError(
            f"query has {len(asked)} characters, and at most {_QUERY_LENGTH} are searched for; "
            "give the few words that matter",
            retry=False,
        )
    if not asked_words(asked):
        raise ToolError(f"query {asked[:60]!r} has no word in it to look for", retry=False)
    return asked


def _looked_up(index: DocumentIndex, query: str, limit: int) -> FoundDocuments:
    try:
        return index.search(query, limit)
    except (DocumentsUnreadable, StoreError) as error:
        raise ToolError(str(error), retry=isinstance(error, StoreLocked)) from error


def _told(opening: str, results: list[SearchResult], *, has_all_words: bool = True) -> str:
    """The results as Markdown."""
    if not results:
        return f"{opening}\n\nNothing was found. Try other words, or fewer."
    note = "" if has_all_words else " None has all the words; these have some of them."
    return f"{opening}{note}\n\n" + "\n\n".join(
        f"{number}. **{_line(result.title) or 'Untitled'}**\n   Source: {_line(result.source)}\n   {_line(result.excerpt)}"
        for number, result in enumerate(results, 1)
    )


def _line(text: str) -> str:
    return " ".join(text.split())

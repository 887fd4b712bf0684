"""The search tool: the web (Tavily, with `TAVILY_API_KEY`), a folder of documents, or the built-in guide."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field, structs

from antiphon.errors import CredentialError, DocumentFolderError, StoreError, StoreLocked, ToolError, TransportError
from antiphon.http.body import BodyTooLong, read_bounded
from antiphon.http.client.client import HttpClient
from antiphon.http.client.request import (
    HttpRequest,
    HttpResponse,
    Timeouts,
    Transport,
)
from antiphon.json_text import NOT_JSON, read_json
from antiphon.providers.keys.secret import Credential, mask
from antiphon.text import one_line
from antiphon.tools.builtin.document_index import DocumentIndex, FoundDocuments, query_terms
from antiphon.tools.context import Language, ToolContext
from antiphon.tools.tool import Tool, tool

TAVILY_URL = "https://api.tavily.com"

_LONGEST_ANSWER = 4_000_000
_TIMEOUTS = Timeouts(connect=10.0, read=30.0, total=40.0)
_NO_RETRY = "Do not search again; answer with what you know, and say that you could not search"
_STATUS_MESSAGES = {
    400: "the search service rejected this query; ask in other words",
    401: f"the search service refused its key: the user must check TAVILY_API_KEY. {_NO_RETRY}",
    403: f"the search service does not allow this search. {_NO_RETRY}",
    422: "the search service rejected this query; ask in other words",
    429: "too many searches in a short time; wait before you search again",
    432: f"the search plan's limit is used up: the user must raise it at Tavily. {_NO_RETRY}",
    433: f"the pay-as-you-go limit for searches is used up: the user must raise it at Tavily. {_NO_RETRY}",
}


class WebPage(Struct, frozen=True):
    """A page that was found."""

    url: str
    title: str | None = None
    content: str | None = None


class _Answer(Struct, frozen=True):
    results: list[WebPage] = field(default_factory=list)


class Tavily:
    """Searches the web with a key: the key itself, `env:NAME` or `file:PATH`."""

    def __init__(self, key: str, *, base_url: str = TAVILY_URL, transport: Transport | None = None) -> None:
        self._credential = Credential(secret=key)
        self._url = f"{base_url.rstrip('/')}/search"
        self._transport = transport or HttpClient()

    async def search(self, query: str, max_results: int = 5) -> list[WebPage]:
        """The pages found, the best first. Raises `ToolError`."""
        try:
            key = self._credential.read()
        except CredentialError as error:
            raise ToolError(f"the search cannot be made: {error}", retry=False) from None
        request = HttpRequest(
            url=self._url,
            headers={
                "Content-Type": "application/json",
                "Authorization": f"Bearer {key}",
                "X-Client-Source": "antiphon",
            },
            body=[msgspec.json.encode({"query": query, "max_results": max_results})],
            timeouts=_TIMEOUTS,
        )
        try:
            response = await self._transport.send(request)
            body = await read_bounded(response, _LONGEST_ANSWER)
        except BodyTooLong:
            raise ToolError(
                "the search service answered with far too much; ask for fewer results", retry=False
            ) from None
        except TransportError as error:
            raise ToolError(f"the search service cannot be reached: {error}") from None
        if response.status != 200:
            raise _refusal(response, body, key)
        try:
            return msgspec.json.decode(body, type=_Answer).results
        except NOT_JSON:
            raise ToolError(f"{request.host} answered with something that is not a search result; try again") from None


def _refusal(response: HttpResponse, body: bytes, key: str) -> ToolError:
    status = response.status
    reason = _STATUS_MESSAGES.get(status, f"the search service answered with status {status}; try again later")
    wait = response.headers.get("retry-after", "")
    if status == 429 and wait.isdecimal():
        reason += f", at least {wait} s"
    detail = _detail(body).replace(key, mask(key))
    return ToolError(f"{reason} ({detail})" if detail else reason, retry=status == 429 or status >= 500)


def _detail(body: bytes) -> str:
    """The service's own message: `{"detail": {"error": "…"}}`, or plain `detail`."""
    decoded = read_json(body)
    detail = decoded.get("detail") if isinstance(decoded, dict) else None
    words = detail.get("error") if isinstance(detail, dict) else detail
    return one_line(words)[:200] if isinstance(words, str) else ""


_GUIDE = Path(__file__).with_name("guide")
_QUERY_LENGTH = 400
_ALL = 100
_CHINESE = re.compile(r"[\u3400-\u9fff]")
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
    base_url: str | None = None,
    transport: Transport | None = None,
) -> Tool:
    """The tool `search_web` over the web (with a Tavily `key`), a `folder` of documents, or the guide that comes along.

    `base_url` is the address of a server that speaks Tavily's API (default: `$TAVILY_BASE_URL`, or Tavily's own). `index` is a
    file to keep the folder's index in. A `transport` that is given stays open; the caller closes it.
    """
    if key is None and folder is None:
        key = os.environ.get("TAVILY_API_KEY")
    if key and key.strip():
        address = base_url or os.environ.get("TAVILY_BASE_URL", "").strip() or TAVILY_URL
        return _web_search(Tavily(key.strip(), base_url=address, transport=transport))
    if folder is None:
        return _document_search(
            DocumentIndex(_GUIDE),
            "Search a short built-in guide (studying, IELTS, travel, Antiphon); no web search is set up. Returns excerpts.",
            is_guide=True,
        )
    return _document_search(
        DocumentIndex(folder, index),
        "Search the user's own documents; there is no access to the web. Returns titles, file names and excerpts.",
    )


def _web_search(tavily: Tavily) -> Tool:
    @tool(effect="read", lax=True, retries=1, cache_seconds=_REMEMBERED, timeout=45.0)
    async def search_web(context: ToolContext, query: _Query, max_results: _MaxResults = 5) -> str:
        """Search the web. Returns titles, addresses and excerpts of the pages found; name the addresses you rely on."""
        checked = _check_query(query)
        pages = await tavily.search(checked, max_results)
        language = context.language(checked)
        return _format_results(
            _WORDS[language].web.format(query=checked),
            [SearchResult(page.title or page.url, page.url, page.content or "") for page in pages[:max_results]],
            words=_WORDS[language],
        )

    return search_web


def _document_search(index: DocumentIndex, description: str, *, is_guide: bool = False) -> Tool:
    """The tool over an index. The guide has each document in two languages; those in the language of the query are searched."""

    @tool(description=description, effect="read", lax=True)
    def search_web(context: ToolContext, query: _Query, max_results: _MaxResults = 5) -> str:
        checked = _check_query(query)
        found = _search_index(index, checked, _ALL if is_guide else max_results)
        if is_guide:
            found = _in_language_of(checked, found, max_results)
        words = _WORDS["zh" if is_guide and _CHINESE.search(checked) else context.language(checked)]
        count = words.one_document if found.searched == 1 else words.several_documents.format(count=found.searched)
        return _format_results(
            (words.guide if is_guide else words.documents).format(count=count, query=checked),
            [
                SearchResult(hit.title, (words.guide_source if is_guide else "") + hit.path, hit.excerpt)
                for hit in found.found
            ],
            has_all_words=any(hit.has_all_words for hit in found.found),
            words=words,
        )

    return search_web


def _in_language_of(query: str, documents: FoundDocuments, limit: int) -> FoundDocuments:
    is_chinese = _CHINESE.search(query) is not None
    found = [hit for hit in documents.found if hit.path.endswith(".zh.md") is is_chinese]
    return structs.replace(documents, found=type(documents.found)(found[:limit]), searched=documents.searched // 2)


def _check_query(query: str) -> str:
    """The query on one line. Refuses what cannot be looked for, in words for the model."""
    line = one_line(query)
    if not line:
        raise ToolError("query is empty; say what to look for", retry=False)
    if len(line) > _QUERY_LENGTH:
        raise ToolError(
            f"query has {len(line)} characters, and at most {_QUERY_LENGTH} are searched for; "
            "give the few words that matter",
            retry=False,
        )
    if not query_terms(line):
        raise ToolError(f"query {line[:60]!r} has no word in it to look for", retry=False)
    return line


def _search_index(index: DocumentIndex, query: str, limit: int) -> FoundDocuments:
    try:
        return index.search(query, limit)
    except (DocumentFolderError, StoreError) as error:
        raise ToolError(str(error), retry=isinstance(error, StoreLocked)) from error


class _ResultWords(Struct, frozen=True):
    """The words around results."""

    none: str = "Nothing was found. Try other words, or fewer."
    some: str = " None has all the words; these have some of them."
    source: str = "Source: "
    untitled: str = "Untitled"
    web: str = 'The web (searched by Tavily) for "{query}".'
    documents: str = 'Local documents, not the web: {count}, searched for "{query}".'
    guide: str = (
        'Antiphon\'s own short guide, not the web: {count}, searched for "{query}". '
        "For the web set TAVILY_API_KEY; a folder of documents can be searched too."
    )
    guide_source: str = "built-in guide, "
    one_document: str = "1 document"
    several_documents: str = "{count} documents"


_WORDS: Mapping[Language, _ResultWords] = MappingProxyType(
    {
        "en": _ResultWords(),
        "zh": _ResultWords(
            none="没有找到。换个词试试，或少用几个词。",
            some="没有一篇包含所有的词，以下包含其中一部分。",
            source="来源：",
            untitled="无标题",
            web="用 Tavily 搜索网络：“{query}”。",
            documents="本地文档（{count}），不是网络搜索；查询“{query}”。",
            guide="Antiphon 自带的简短指南（{count}），不是网络搜索；查询“{query}”。"
            "要搜索网络请设置 TAVILY_API_KEY，也可以搜索一个文件夹里的文档。",
            guide_source="自带指南，",
            one_document="1 篇",
            several_documents="{count} 篇",
        ),
    }
)


def _format_results(
    opening: str, results: list[SearchResult], *, words: _ResultWords, has_all_words: bool = True
) -> str:
    """The results as Markdown."""
    if not results:
        return f"{opening}\n\n{words.none}"
    note = "" if has_all_words else words.some
    return f"{opening}{note}\n\n" + "\n\n".join(
        f"{number}. **{one_line(result.title) or words.untitled}**\n   {words.source}{one_line(result.source)}"
        f"\n   {one_line(result.excerpt)}"
        for number, result in enumerate(results, 1)
    )

"""The login form of the status page: one field for the admin key, sent in the body of a POST and never in a URL."""

from __future__ import annotations

from antiphon.http.messages import ClientRequest, Response
from antiphon_gateway.access.page_session import LANGUAGE_COOKIE, PAGE, cookie
from antiphon_gateway.observe.page.html import PAGE_HEADERS, document
from antiphon_gateway.observe.page.texts import TEXTS, choose_language


def login_page(request: ClientRequest, problem: str = "", *, status: int = 401, seconds: int = 0) -> Response:
    """The form; `problem` is the name of the text that says what was wrong with the last try."""
    language = choose_language(request.headers.get("accept-language", ""), cookie(request, LANGUAGE_COOKIE))
    say = TEXTS[language]
    alarm = (
        f'<div class="alarm" role="alert" id="problem"><b class="bad">{say[problem].format(seconds=seconds)}</b></div>'
        if problem
        else ""
    )
    described = "note problem" if problem else "note"
    body = (
        f'<header><h1>{say["login_title"]}</h1><p class="quiet" id="note">{say["login_note"]}</p>{alarm}</header>'
        f'<form class="login" method="post" action="{PAGE}/login">'
        '<input type="text" name="username" value="admin" autocomplete="username" hidden>'  # for password managers
        f'<label for="key">{say["admin_key"]}</label>'
        '<input id="key" name="key" type="password" required autofocus autocomplete="current-password" '
        f'aria-describedby="{described}">'
        f'<button type="submit">{say["log_in"]}</button></form>'
    )
    headers = dict(PAGE_HEADERS) | ({"retry-after": str(seconds)} if seconds else {})
    return Response(status=status, headers=headers, body=document(language, say["title"], body))

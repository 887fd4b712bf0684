"""The language of the terminal chat: the locale's, or the one that is asked for."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from providers.http_client import ERROR_429
from providers.scripted_server import Reply, ScriptedServer
from support.terminal import Terminal, with_model

LEAVE = "\x04"


def test_chat_follows_the_locale(tmp_path: Path) -> None:
    with Terminal(tmp_path, "chat", environment={"LC_ALL": "zh_CN.UTF-8"}, columns=100) as terminal:
        terminal.sees("由导览来回答；它不是模型。", "1 先搜索，再制定计划", "Ctrl-D 退出")
        terminal.send("/help")
        terminal.sees("命令", "或可分享的 .html", "Ctrl-O 展开折叠块")
        terminal.send("help")
        terminal.sees("发送数字即可体验")
        terminal.send("/histroy")
        terminal.sees("未知命令 /histroy；是否想输入 /history？")
        terminal.send("搜索雅思备考资料，然后做一个计划")
        terminal.sees("✓ 创建了计划", "3 回合 ·")
        terminal.send("/history 1")
        terminal.sees("版本 10，输入")
        terminal.type(LEAVE)
        terminal.sees("已保存为", "antiphon chat --resume` 继续")  # the path of the program decides where the line ends
        assert terminal.ends() == 0


def test_approvals_follow_the_locale(tmp_path: Path) -> None:
    with Terminal(tmp_path, "chat", "--ask", environment={"LANG": "zh_CN.UTF-8", "LC_ALL": ""}) as terminal:
        terminal.sees("Ctrl-D 退出")
        terminal.send("make me a plan to learn Go")
        terminal.sees("创建这个计划？", "y 好 · n 先不要 [理由]")
        terminal.send("?")
        terminal.sees("请输入 y、n、e、t 或 l")
        terminal.send("a")
        terminal.sees("✓ 创建了计划", "回合 ·")


def test_a_chinese_approval_is_readable_in_a_small_terminal(tmp_path: Path) -> None:
    environment = {"ANTIPHON_LANGUAGE": "zh"}
    with Terminal(tmp_path, "chat", "--ask", environment=environment, columns=44, rows=20) as terminal:
        terminal.sees("Ctrl-D 退出")
        terminal.send("1")
        screen = terminal.sees("创建这个计划？", "y 好 · n 先不要", "l 全部 ›")  # which is wider than the terminal
        shown = screen.partition("创建这个计划？")[2].partition("导览 ·")[0]
        lines = [line for line in shown.splitlines() if line.strip()]
        assert len(lines) > 6
        assert all(line.startswith("  ") for line in lines), "no line is wider than the terminal"
        terminal.send("d 不用")
        terminal.send("使用 pause")
        terminal.sees("是否运行 pause？", "（无参数）")


def test_language_option_overrides_the_locale(tmp_path: Path) -> None:
    with Terminal(tmp_path, "chat", "--language", "en", environment={"LC_ALL": "zh_CN.UTF-8"}) as terminal:
        terminal.sees("Ctrl-D: quit", "One history, every model.")
    with Terminal(tmp_path, "chat", environment={"LC_ALL": "C.UTF-8", "ANTIPHON_LANGUAGE": "zh"}) as terminal:
        terminal.sees("Ctrl-D 退出", "一份历史，每个模型。")


def test_errors_of_a_provider_follow_the_locale(tmp_path: Path) -> None:
    refusal = Reply(status=401, body=b'{"error": {"message": "bad key"}}')
    with ScriptedServer(refusal) as server, with_model(server, tmp_path, "--language", "zh", columns=120) as terminal:
        terminal.sees("Ctrl-D 退出")
        terminal.send("hi")
        terminal.sees("openai 401: bad key", "请检查密钥（OPENAI_API_KEY", "用 /model 切换模型。")


@pytest.mark.parametrize(
    ("language", "waiting", "stopped"),
    [
        (
            "en",
            "openai/gpt-test: the provider asks to wait 40 s; trying again at",
            "(stopped)",
        ),
        ("zh", "openai/gpt-test：服务商要求等待 40 s，将于", "已停止"),
    ],
    ids=["english", "chinese"],
)
def test_a_wait_for_the_provider_is_explained_and_can_be_stopped(
    tmp_path: Path, language: str, waiting: str, stopped: str
) -> None:
    limited = msgspec.structs.replace(ERROR_429, headers={"retry-after": "40"})
    with (
        ScriptedServer(limited) as server,
        with_model(server, tmp_path, "--language", language, columns=120) as terminal,
    ):
        terminal.sees("Ctrl-D")
        terminal.send("hello")
        terminal.sees(waiting, "Ctrl-C")
        terminal.type("\x03")
        terminal.sees(stopped)
        assert len(server.received) == 1

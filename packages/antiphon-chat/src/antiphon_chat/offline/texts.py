"""The texts of the guided tour, in English and in Chinese."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from antiphon.cli.program import runnable
from antiphon_chat.language import Language

NOTICE: Mapping[Language, str] = MappingProxyType(
    {
        "en": "(Guided tour: not a language model. The tools, the log and the formats are real.)",
        "zh": "（导览：这不是语言模型；工具、日志和各家格式都是真实运行的。）",
    }
)
"""The first line of its first answer, unless the answer itself introduces the tour."""

REAL_MODEL: Mapping[Language, str] = MappingProxyType(
    {
        "en": (
            "For a real model: paste an API key (`/key anthropic`, or the model menu of the page), set `ANTHROPIC_API_KEY`, "
            "`OPENAI_API_KEY` or `GOOGLE_API_KEY`, or run Ollama, LM Studio or vLLM on this machine. `/model` lists what is "
            "available."
        ),
        "zh": (
            "要使用真正的模型：粘贴 API 密钥（`/key anthropic` 或页面的模型菜单），设置 `ANTHROPIC_API_KEY`、`OPENAI_API_KEY` 或 "
            "`GOOGLE_API_KEY`，或在本机运行 Ollama、LM Studio 或 vLLM。可用的模型见 `/model`。"
        ),
    }
)

_MENU_EN = """\
Send a number to try one of these now:

1. **Search, then plan**: “find IELTS tips, then make me a 4 week plan”
2. **Kill me in the middle of a tool**, and continue where I was
3. **See this conversation as each provider would receive it**
4. **Roll back and fork**"""
_MENU_ZH = """\
发送数字即可体验：

1. **先搜索，再制定计划**：“搜索雅思备考方法，然后制定一个4周的计划”
2. **在工具运行时杀掉我**，再从中断处继续
3. **看每家服务商会收到的这段对话**
4. **回滚与分叉**"""

_SENTENCES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "hello": (
            f"Hello! I am the guided tour of Antiphon, not a language model: I follow a short script. "
            "What I run is real: tools, a log on disk that survives a crash, and the formats of five "
            f"APIs.\n\n{_MENU_EN}\n\n"
            f"{REAL_MODEL['en']}",
            "你好！我是 Antiphon 的导览，不是语言模型，只按一份简短的脚本回答。我运行的东西都是真实的：工具、"
            "崩溃后仍在的磁盘日志、"
            f"五种 API 的格式。\n\n{_MENU_ZH}\n\n{REAL_MODEL['zh']}",
        ),
        "who": (
            "I am the guided tour of Antiphon, not a language model. Antiphon keeps a conversation as one append-only log and "
            f"sends it to any model in the form that model's API accepts.\n\n{_MENU_EN}",
            "我是 Antiphon 的导览，不是语言模型。Antiphon 把对话保存为一份只追加的日志，并按每个模型的 API 所接受的格式发送。"
            f"\n\n{_MENU_ZH}",
        ),
        "help": (
            f"{_MENU_EN}\n\nI also list your plans (“list my plans”), change a goal (“set the goal of the first "
            "plan to band 8”) and call a tool that you name (`use list_plans`). `/help` lists the commands of the "
            f"terminal; on the page press `?`.\n\n{REAL_MODEL['en']}",
            f"{_MENU_ZH}\n\n我也能列出计划（“列出我的计划”），修改目标（“更新第一个计划的目标为达到8分”），"
            "或调用你指定的工具（`使用 list_plans`）。终端的命令见 `/help`；页面上请按 `?`。"
            f"\n\n{REAL_MODEL['zh']}",
        ),
        "other": (
            f"I cannot answer that: I am a guided tour, not a language model. {REAL_MODEL['en']}\n\nSend `help` to see what "
            "works without one.",
            f"这个我答不了：我是导览，不是语言模型。{REAL_MODEL['zh']}\n\n发送“帮助”，看看没有模型时能做什么。",
        ),
        "attached": ("I cannot look into attachments ({count}).", "我无法查看附件（{count} 个）。"),
        "calling": ("I call `{tool}`: {what}", "我来调用 `{tool}`：{what}"),
        "calling_plain": ("I call `{tool}`.", "我来调用 `{tool}`。"),
        "returned": ("`{tool}` returned:\n\n{result}", "`{tool}` 返回：\n\n{result}"),
        "returned_nothing": ("`{tool}` returned an empty result.", "`{tool}` 返回了空结果。"),
        "failed": ("`{tool}` failed: {result}", "`{tool}` 失败：{result}"),
        "not_run": ("`{tool}` did not run: {result}", "`{tool}` 没有运行：{result}"),
        "no_tool": (
            "This conversation has no tool `{tool}`, so I cannot do that here.",
            "这个对话没有工具 `{tool}`，所以在这里做不了。",
        ),
        "found": ("The search for “{query}” found:\n\n{list}", "搜索“{query}”找到：\n\n{list}"),
        "found_nothing": (
            "The search for “{query}” found nothing. Without a key for web search it has only a few documents: studying, "
            "IELTS, travel, Antiphon. Set `TAVILY_API_KEY` to search the web, or give a folder with `--folder`.",
            "搜索“{query}”没有结果。没有网络搜索的密钥时，只有几篇文档：学习方法、雅思、旅行、Antiphon。设置 `TAVILY_API_KEY` "
            "可以搜索网络，也可以用 `--folder` 指定文件夹。",
        ),
        "no_plan": ("So I made no plan.", "因此没有制定计划。"),
        "planned": (
            "I made the plan “{title}” with {count} tasks, taken from what was found: {sources}.\n\nGoal: {goal}\n\n{tasks}\n\n"
            "`/plans`, or *Plans* on the page, shows it. Send `3` to see what a provider would receive now.",
            "计划“{title}”已创建，共 {count} 个任务，取自找到的内容：{sources}。\n\n目标：{goal}\n\n{tasks}\n\n"
            "用 `/plans` 或页面的“计划”查看。发送 `3` 可以看到服务商此时会收到什么。",
        ),
        "planned_alone": (
            "I made the plan “{title}” with {count} general tasks, without a search.\n\nGoal: {goal}\n\n{tasks}\n\n"
            "`/plans`, or *Plans* on the page, shows it.",
            "计划“{title}”已创建，共 {count} 个通用任务，没有搜索。\n\n目标：{goal}\n\n{tasks}\n\n"
            "用 `/plans` 或页面的“计划”查看。",
        ),
        "plans": ("Your plans ({count}):\n\n{list}", "你有 {count} 个计划：\n\n{list}"),
        "plan_line": (
            "{number}. **{title}** ({id}), {done} of {count} tasks done{goal}",
            "{number}. **{title}**（{id}），{count} 个任务完成了 {done} 个{goal}",
        ),
        "plan_goal": (". Goal: {goal}", "。目标：{goal}"),
        "no_plans": (
            "There are no plans yet. “find IELTS tips, then make me a 4 week plan” makes one.",
            "还没有计划。发送“搜索雅思备考方法，然后制定一个4周的计划”可以创建一个。",
        ),
        "not_changed": ("So nothing was changed.", "因此什么也没有修改。"),
        "no_such_plan": ("There is no such plan; the plans are:\n\n{list}", "没有这个计划，现有的计划是：\n\n{list}"),
        "changed": (
            "The goal of “{title}” ({id}) is now: {goal}",
            "“{title}”（{id}）的目标现在是：{goal}",
        ),
        "goal": (
            "By {date}: use “{topic}” in practice, and check it with a test",
            "{date} 前：把“{topic}”用到练习中，并测试一次",
        ),
        "task_line": ("{place}. {title} ({due})", "{place}. {title}（{due}）"),
        "comma": (", ", "、"),
        "goal_band": ("Reach band {band} by {date}", "{date} 前达到 {band} 分"),
        "from": ("From: {title}", "来自：{title}"),
        "and": (" and ", "、"),
        "title": ("{topic}: {duration} plan", "{topic}：{duration}计划"),
        "read": ("Read and take notes: {title}", "阅读并做笔记：{title}"),
        "check": ("Check what you learned, and decide the next step", "检查学习效果，决定下一步"),
        "general": (
            "Write the goal down so that it can be checked|Measure where you are now|Do the first step|Look back after a week",
            "写下可以检验的目标|测一测现在的水平|做第一步|一周后回顾",
        ),
        "my_topic": ("My goal", "我的目标"),
        "kill": (
            "I call `pause`, which takes {seconds} seconds and must not run twice. Kill this process now, in another "
            "terminal:\n\n"
            "```sh\nkill -9 {pid}\n```\n\nThen start it again with `antiphon chat --resume` (or `antiphon chat --web --resume`) "
            "and continue with `/retry`, or *Resume* on the page.",
            "我来调用 `pause`，它需要 {seconds} 秒，而且不能运行两次。现在请在另一个终端里杀掉这个进程：\n\n"
            "```sh\nkill -9 {pid}\n```\n\n然后用 `antiphon chat --resume`（或 `antiphon chat --web --resume`）重新启动，"
            "再用 `/retry` 或页面上的“继续”接着运行。",
        ),
        "killed": (
            "I was killed while `pause` ran, and this is another process. The log had recorded that the call had started, so it "
            "was not run again; its result is *outcome unknown*, and every provider accepts this history. `/history` shows it.",
            "`pause` 运行时我被杀掉了，现在是另一个进程。日志里记着这次调用已经开始，所以没有再次运行，结果记为 "
            "*outcome unknown*，"
            "这段历史每家服务商都能接受。用 `/history` 查看。",
        ),
        "not_killed": (
            "The {seconds} seconds are over and this process still runs. Send `2` to try again.",
            "{seconds} 秒已过，进程还在运行。发送 `2` 再试一次。",
        ),
        "no_pause": (
            "The tour's tool `pause` is available if you start `antiphon chat -m offline`. `make demo` shows the same with "
            "another tool.",
            "用 `antiphon chat -m offline` 启动，就有导览的工具 `pause`。`make demo` 用另一个工具演示了同样的过程。",
        ),
        "rendered": (
            "I rendered this conversation for four APIs just now. An excerpt of each body:\n\n{bodies}\n\nThe history view "
            "of the page shows the whole bodies for every version, with additions, losses and repairs marked.",
            "我刚刚为四种 API 生成了这段对话。各个请求体的节选：\n\n{bodies}\n\n页面的历史视图显示每个版本的完整请求体，"
            "并标出新增、丢失和修复的内容。",
        ),
        "body": (
            "**{name}** ({model}): {size:,} bytes, rules broken: {broken}, losses: {losses}",
            "**{name}**（{model}）：{size:,} 字节，违反规则 {broken} 条，丢失 {losses} 项",
        ),
        "rolled_back": (
            "I did both on a copy of this conversation in memory:\n\n{steps}\n\nNow you: `/rollback` takes back your "
            "last message "
            "and `/fork` continues in a copy; on the page use *Roll back to here* and *Fork from here*. `/history "
            "all` shows that "
            "nothing was deleted.",
            "我在内存中用这段对话的副本做了这两件事：\n\n{steps}\n\n现在轮到你：`/rollback` 撤回你的上一条消息，"
            "`/fork` 在副本中继续；"
            "页面上用“回滚到这里”和“从这里分叉”。`/history all` 可以看到什么都没有删除。",
        ),
        "copied": (
            "- the copy: version {version}, {entries} entries, the model sees {visible}",
            "- 副本：版本 {version}，{entries} 条记录，模型看到 {visible} 条",
        ),
        "undone": (
            "- rolled back to version {to}: version {version}, {entries} entries, the model sees {visible}",
            "- 回滚到版本 {to}：版本 {version}，{entries} 条记录，模型看到 {visible} 条",
        ),
        "forked": (
            "- forked at version {to}: a new history with {entries} entries; the copy is unchanged",
            "- 在版本 {to} 分叉：一份有 {entries} 条记录的新历史；副本不变",
        ),
    }
)


def say(language: Language, sentence: str, **values: object) -> str:
    """A text with its values filled in."""
    english, chinese = _SENTENCES[sentence]
    text = chinese if language == "zh" else english
    return runnable(text.format(**values) if values else text)

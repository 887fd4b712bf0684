"""The texts of the offline model, in English and in Chinese."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from antiphon.chat.offline.clauses import Language

NOTICE: Mapping[Language, str] = MappingProxyType(
    {
        "en": "(Offline model: not a language model, just rules that read your message and call the tools on offer.)",
        "zh": "（离线模型：这不是语言模型，只是按规则阅读你的话并调用现有工具的程序。）",
    }
)
"""The first line of its first answer."""

ASKS: Mapping[Language, str] = MappingProxyType(
    {"en": "To call `{tool}` I need: {missing}.", "zh": "要调用 `{tool}`，我还需要：{missing}。"}
)

_SENTENCES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "calling_plain": ("I call `{tool}`.", "我来调用 `{tool}`。"),
        "calling": ("I call `{tool}`: {what}", "我来调用 `{tool}`：{what}"),
        "correcting": (
            "`{tool}` answered with an error ({error}). I correct the call and try once more.",
            "`{tool}` 返回了错误（{error}）。我修正参数后再试一次。",
        ),
        "failed": ("`{tool}` failed: {error}", "`{tool}` 失败了：{error}"),
        "failed_twice": (
            "`{tool}` failed, also after I corrected the call: {error}",
            "`{tool}` 失败了，修正后重试仍然失败：{error}",
        ),
        "searched": ("The search for “{query}” found:", "搜索“{query}”的结果："),
        "found_nothing": ("The search for “{query}” found nothing I can list.", "搜索“{query}”没有可列出的结果。"),
        "created": (
            "The plan “{title}” is made{identity}. Goal: {goal}",
            "计划“{title}”已创建{identity}。目标：{goal}",
        ),
        "plans": ("Plans ({count}):", "计划（共 {count} 个）："),
        "no_plans": ("There are no plans yet.", "目前还没有计划。"),
        "updated": ("The plan “{title}” is changed: {changes}.", "计划“{title}”已更新：{changes}。"),
        "deleted": ("The plan “{title}” is deleted.", "计划“{title}”已删除。"),
        "returned": ("`{tool}` answered:", "`{tool}` 的回答："),
        "returned_nothing": ("`{tool}` ran and had nothing to say.", "`{tool}` 已执行，没有返回内容。"),
        "which": (
            "I cannot tell which plan you mean. Name it by its number or its title:",
            "我不确定你指的是哪个计划，请说明是第几个或它的标题：",
        ),
        "no_such_plan": ("I found no plan to do that with.", "没有找到可以操作的计划。"),
        "no_such_task": (
            "“{title}” has no such task (tasks: {count}).",
            "“{title}”没有这个任务，它共有 {count} 个任务。",
        ),
        "what_change": (
            "Say what to change and to what, such as: change the goal of the first plan to 8.",
            "请说明要改什么、改成什么，例如：把第一个计划的目标改为达到8分。",
        ),
        "no_tool": ("There is no tool on offer for: {wishes}.", "现有工具做不到：{wishes}。"),
        "left": (
            "I do at most {most} things for one message; say again: {wishes}.",
            "一条消息我最多做 {most} 件事，请再说一次：{wishes}。",
        ),
        "plain": (
            "You wrote “{message}” (words: {words}). What I was given beside it: {given}.",
            "你写的是“{message}”（{words} 个字）。除此之外我拿到的是：{given}。",
        ),
        "can": (
            "I can do what the tools do if you say it plainly, for example: {example}.",
            "只要说清楚，我就能用这些工具做事，例如：{example}。",
        ),
        "cannot": (
            "Without tools I can only repeat and count. For real answers choose a real model (set a key, or name it as "
            "provider/model).",
            "没有工具时，我只能复述和计数。想得到真正的回答，请换用真正的模型（设置密钥，或用 provider/model 指定）。",
        ),
        "tools": ("the tools {names}", "工具 {names}"),
        "no_tools": ("no tools", "没有工具"),
        "earlier": ("earlier messages: {count}", "之前的消息 {count} 条"),
        "attached": ("attachments I cannot look into: {count}", "我无法查看的附件 {count} 个"),
        "more": ("… and {count} more", "……另有 {count} 项"),
        "done_tasks": ("tasks done: {done} of {count}", "已完成任务 {done}/{count}"),
        "example_plan": (
            "“find good ways to learn Spanish, then make me a 3 month plan”",
            "“搜索 IELTS 备考方法，然后帮我制定一个3个月的学习计划”",
        ),
        "example_tool": ("“use {tool} {arguments}”", "“使用 {tool} {arguments}”"),
        "goal": ("{topic}, within {duration}", "在{duration}内完成：{topic}"),
        "title": ("{topic}: {duration} {kind}", "{topic}：{duration}{kind}"),
        "kind": ("plan", "计划"),
        "start": ("Find out where you stand", "评估现状，明确目标"),
        "end": ("Look back, and set the next steps", "总结复盘，安排下一步"),
        "phases": (
            "Learn the basics|Practise regularly|Test yourself and fill the gaps",
            "打好基础|坚持练习|自我测试，查漏补缺",
        ),
        "note": ("About {days} days.", "约{days}天。"),
        "note_source": ("About {days} days. Source: {source}", "约{days}天。来源：{source}"),
        "and": (" and ", "、"),
    }
)


def say(language: Language, sentence: str, **values: object) -> str:
    """A sentence with its placeholders filled."""
    english, chinese = _SENTENCES[sentence]
    return (chinese if language == "zh" else english).format(**values)

"""What only the terminal and saved pages say, in Chinese, by its English text. `{name}` is filled in."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

CHINESE: Mapping[str, str] = MappingProxyType(
    {
        # Greeting and input.
        "Enter: send · Alt-Enter: new line · Ctrl-C: stop · Ctrl-D: quit · /help": (
            "Enter 发送 · Alt-Enter 换行 · Ctrl-C 停止 · Ctrl-D 退出 · /help 帮助"
        ),
        "{model}; change it with /model.": "{model}，用 /model 切换。",
        "Set {variable} or name another model to change it (also available: {models}).": (
            "要更换，请设置 {variable} 或指定其他模型（还可使用：{models}）。"
        ),
        "Ctrl-D: quit": "Ctrl-D 退出",
        "Saved as {id}. Resume with `antiphon chat --resume`.": "已保存为 {id}，用 `antiphon chat --resume` 继续。",
        "{model} · {tokens:,} tokens": "{model} · {tokens:,} token",
        "no key": "无密钥",
        "One history, every model.": "一份历史，每个模型。",
        " No key yet, so a guided tour answers; it is not a model.": "还没有密钥，所以由导览来回答；它不是模型。",
        "search, then plan": "先搜索，再制定计划",
        "stop me in the middle": "在中途停掉我",
        "go on later: {command}": "之后继续：{command}",
        "and go on later": "之后再继续",
        "see it as each provider": "看每家服务商收到的内容",
        "roll back and fork": "回滚与分叉",
        "use a real model": "使用真正的模型",
        "Anthropic, OpenAI, Google or a compatible host": "Anthropic、OpenAI、Google 或兼容的服务",
        "Write, or send 1, 2, 3 or 4": "写点什么，或发送 1、2、3、4",
        "Found on this machine: /model {model}": "在本机找到：/model {model}",
        "{text}… ({count:,} characters)": "{text}…（共 {count:,} 个字符）",
        "queued: {text}": "排队中：{text}",
        "[pasted {number}: {count:,} characters]": "[粘贴 {number}：{count:,} 个字符]",
        "folder": "文件夹",
        "(interrupted)": "（已中断）",
        # Approvals.
        "… {count} more lines; Ctrl-O shows all of it": "… 还有 {count} 行；Ctrl-O 显示全部",
        "y yes · n no [reason] · e change · t always · l all › ": (
            "y 好 · n 先不要 [理由] · e 修改 · t 总是允许 · l 全部 › "
        ),
        "arguments › ": "参数 › ",
        "(no arguments)": "（无参数）",
        "Enter y, n, e, t or l; Ctrl-C to decide later.": "请输入 y、n、e、t 或 l；按 Ctrl-C 稍后决定。",
        "Approval still pending. /retry to decide, or send a new message.": "仍待批准。用 /retry 决定，或发送新消息。",
        "Pending approvals; /retry to decide:": "待批准的调用，用 /retry 决定：",
        "The last turn is unfinished; /retry to resume it.": "上一轮尚未完成，用 /retry 继续。",
        # Turns.
        "{frame} thinking {seconds:.0f} s  {text}": "{frame} 思考中 {seconds:.0f} s  {text}",
        "{frame} {model} {seconds:.0f} s  (Ctrl-C: stop)": "{frame} {model} {seconds:.0f} s  （Ctrl-C 停止）",
        "{frame} {retry}  (Ctrl-C: stop)": "{frame} {retry}  （Ctrl-C 停止）",
        "{model}: the provider asks to wait {seconds:.0f} s; trying again at {at}": (
            "{model}：服务商要求等待 {seconds:.0f} s，将于 {at} 重试"
        ),
        "{model}: {message}; trying again at {at}": "{model}：{message}，将于 {at} 重试",
        "thought for {seconds:.0f} s": "思考了 {seconds:.0f} s",
        " (cached)": "（缓存结果）",
        " (Ctrl-O)": "（Ctrl-O 展开）",
        "Searched “{query}”": "搜索了“{query}”",
        "Searching “{query}”": "正在搜索“{query}”",
        " [{count} lines, Ctrl-O]": " [{count} 行，Ctrl-O 展开]",
        "the first agent": "第一个智能体",
        "entries {since} to {to} summarised": "第 {since} 至 {to} 条已压缩为摘要",
        "entries {since} to {to} left out": "第 {since} 至 {to} 条已省略",
        "1 result shortened": "1 条结果已缩短",
        "{count:,} results shortened": "{count:,} 条结果已缩短",
        "1 result shortened to a note": "1 条结果已缩短为一行说明",
        "{count:,} results shortened to notes": "{count:,} 条结果已缩短为一行说明",
        "stopped: the conversation is too large for the model, and nothing more can be left out": (
            "已停止：对话超出模型上限，已没有可以省略的内容"
        ),
        "1 round · {tokens:,} tokens · {seconds:.1f} s": "1 回合 · {tokens:,} token · {seconds:.1f} s",
        "{rounds} rounds · {tokens:,} tokens · {seconds:.1f} s": "{rounds} 回合 · {tokens:,} token · {seconds:.1f} s",
        "  done in {seconds:.1f} s: {result}": "  用时 {seconds:.1f} s：{result}",
        "  failed: {result}": "  失败：{result}",
        "stopped": "已停止",
        "stopped; the partial answer is saved": "已停止，已生成的内容会保留",
        "stopped: round limit reached; the model answered with what it had": (
            "已停止：达到回合数上限，模型已根据现有内容回答"
        ),
        "stopped: tool calls kept failing; the model answered with what it had": (
            "已停止：工具调用连续失败，模型已根据现有内容回答"
        ),
        "stopped: the model repeated the same calls and was asked to answer": (
            "已停止：模型重复相同的调用，已要求它直接回答"
        ),
        "stopped: token budget used up": "已停止：token 预算用尽",
        "stopped: time budget used up": "已停止：时间预算用尽",
        "stopped: call budget used up": "已停止：调用次数用尽",
        "stopped: too many hand-offs between agents": "已停止：智能体之间的移交次数过多",
        "stopped: a hook refused to call the model": "已停止：钩子拒绝了对模型的调用",
        "Nothing is collapsed.": "没有折叠的内容。",
        "There are {count} collapsed blocks.": "共有 {count} 个折叠块。",
        # Errors of the chat.
        "Another process added {count} entries to this conversation. Review them and send your message again.": (
            "另一个进程向此对话添加了 {count} 条记录。请查看后重新发送消息。"
        ),
        "internal error: {kind}: {error}; please report it": "内部错误：{kind}：{error}；请报告此问题",
        "unknown command /{name}; {advice} (Start a message with // to send it as text.)": (
            "未知命令 /{name}；{advice}（要作为文字发送，请以 // 开头。）"
        ),
        "did you mean {names}?": "是否想输入 {names}？",
        " or ": " 或 ",
        "/help lists them": "/help 列出所有命令",
        "unknown subcommand {name!r}; usage: {usage}": "未知子命令 {name!r}；用法：{usage}",
        "invalid number {text!r}; usage: {usage}": "无效的数字 {text!r}；用法：{usage}",
        "the last turn is finished; send a new message": "上一轮已完成，请发送新消息",
        "no conversation {number} in the list; /resume shows the list": "列表中没有对话 {number}；用 /resume 查看列表",
        "{path} already exists; give another name": "{path} 已存在，请换一个名字",
        "Saved as {path}.": "已保存为 {path}。",
        "no title was written; send a message to a model first": "没有写出标题；请先向模型发送消息",
        "{editor} exited with {code}; nothing was changed": "{editor} 以 {code} 退出，未作更改",
        "cannot start the editor {editor}: {error}": "无法启动编辑器 {editor}：{error}",
        # Errors of a provider: the next step.
        "Rephrase the message, or {switch}.": "请改写消息，或{switch}。",
        "{shorten}, or {switch}.": "{shorten}，或{switch}。",
        "Check the key{key}, or {switch}.": "请检查密钥{key}，或{switch}。",
        "The account has no credit left: add credit, or {switch}.": "账户余额不足：请充值，或{switch}。",
        "The key{key} lacks permission: use another key, or {switch}.": "密钥{key} 没有权限：请换一个密钥，或{switch}。",
        "Check the model name, or {switch}.": "请检查模型名称，或{switch}。",
        "{retry}.": "{retry}。",
        "Remove attachments, or {switch}.": "请移除附件，或{switch}。",
        "Wait a moment. {retry}, or {switch}.": "请稍候。{retry}，或{switch}。",
        "{retry}, or {switch}.": "{retry}，或{switch}。",
        "Check the network connection. {retry}, or {switch}.": "请检查网络连接。{retry}，或{switch}。",
        " in {variables}": "（{variables}）",
        "/retry to try again": "用 /retry 重试",
        "switch with /model": "用 /model 切换模型",
        "/compact to shorten the conversation": "用 /compact 压缩对话",
        "choose another model with --model": "用 --model 选择其他模型",
        "Shorten the message": "请缩短消息",
        # One message (-p).
        "{tools} needs approval; decide with `antiphon chat --resume {id}`": (
            "{tools} 需要批准；用 `antiphon chat --resume {id}` 决定"
        ),
        "no answer: {reason}": "没有回答：{reason}",
        "the model's last response has no text{stop}{content}{end}; `antiphon history show {id}` shows it": (
            "模型的最后一次回复没有文字{stop}{content}{end}；用 `antiphon history show {id}` 查看"
        ),
        "; it has {parts}": "；其中有 {parts}",
        " (stop reason: {reason})": "（停止原因：{reason}）",
        # Commands.
        "COMMAND": "命令",
        "DOES": "作用",
        "list the commands": "列出命令",
        "list the models; switch to one": "列出模型；切换模型",
        "paste an API key of a provider, or remove it": "粘贴或删除服务商的 API 密钥",
        "show the log: versions, kinds, rounds, usage": "显示历史：版本、类型、回合、用量",
        "show the context size, the tokens used and their cost": "显示上下文大小、已用 token 和费用",
        "replace earlier turns by a summary": "把之前的轮次压缩为摘要",
        "undo the last message, or return to a version": "撤销上一条消息，或回到某个版本",
        "continue in a copy, from here or from a version": "在副本中继续，从当前或某个版本分叉",
        "resume a turn that failed, stopped or is pending approval": "继续失败、停止或待批准的轮次",
        "answer the last message again in a branch": "在分支中重新回答上一条消息",
        "show or change the notebook the model always sees": "显示或修改记忆笔记（模型始终可见）",
        "show or change the system instruction": "显示或修改系统指令",
        "list the tools": "列出工具",
        "list or change the MCP servers": "列出或修改 MCP 服务器",
        "list the plans and their progress": "列出计划及进度",
        "expand a collapsed block: the last, or the Nth last": "展开折叠块：最后一个，或倒数第 N 个",
        "show or set the title, or let the model write it": "显示或设置标题，或让模型来写",
        "start a new conversation": "开始新对话",
        "list the conversations; resume one": "列出对话；继续其中一个",
        "save this conversation: .jsonl, .md, .json, or .html to share": "保存对话：.jsonl、.md、.json，或可分享的 .html",
        "quit (Ctrl-D)": "退出（Ctrl-D）",
        "Enter sends; Alt-Enter, or Enter after a backslash, starts a new line. @file attaches a file. Messages sent while "
        "a turn runs are queued; Ctrl-C stops the turn and returns queued messages to the input. Ctrl-O expands collapsed "
        "blocks. Tab completes.": (
            "Enter 发送；Alt-Enter 或行末反斜杠加 Enter 换行。@文件名 添加附件。回答进行中发送的消息会排队；Ctrl-C 停止回答，"
            "排队的消息回到输入框。Ctrl-O 展开折叠块，Tab 补全。"
        ),
        "Model set to {model}": "已切换到 {model}",
        "/key PROVIDER": "/key 服务商",
        "paste an API key; it is not shown": "粘贴 API 密钥，不会显示",
        "{count} more; Tab after /model searches them": "另有 {count} 个；在 /model 后按 Tab 搜索",
        "small local model, weak; to install: {command}": "本地小模型，能力弱；安装：{command}",
        "guided tour: not a model, needs no key": "导览：不是模型，不需要密钥",
        "usage: /key PROVIDER [forget]; PROVIDER is one of: {names}": "用法：/key 服务商 [forget]；服务商可以是：{names}",
        "no key of {provider} was pasted or stored here": "没有粘贴或保存过 {provider} 的密钥",
        "do not type a key after the command; send /key {provider} and paste it": (
            "不要把密钥写在命令后面；请发送 /key {provider} 再粘贴"
        ),
        "key of {provider} (not shown) › ": "{provider} 的密钥（不显示）› ",
        "store it on this machine? y/n › ": "保存在本机？y/n › ",
        "MODEL": "模型",
        "/model NAME switches; NAME may be part of a name, or any provider/model.": (
            "/model 名称 切换模型；名称可以只写一部分，也可以是任意 provider/model。"
        ),
        "version {version}, {usage}": "版本 {version}，{usage}",
        "Context: {tokens:,} tokens.": "上下文：{tokens:,} token。",
        "Used so far: {usage}.": "已使用：{usage}。",
        "{count:,} in": "输入 {count:,}",
        "{count:,} out": "输出 {count:,}",
        "{count:,} of those in from a cache": "输入中 {count:,} 来自缓存",
        "{count:,} of those out for reasoning": "输出中 {count:,} 用于推理",
        "Cost: {money}.": "费用：{money}。",
        "Price unknown for {count} of {calls} model calls.": "{calls} 次模型调用中有 {count} 次价格未知。",
        "Summarized entries {since} to {to}: {before:,} tokens before, {after:,} after. Undo with /rollback {version}.": (
            "已压缩第 {since} 至 {to} 条记录：之前 {before:,} token，之后 {after:,}。用 /rollback {version} 撤销。"
        ),
        "Rolled back to version {version}. Undo with /rollback {previous}.": (
            "已回滚到版本 {version}，用 /rollback {previous} 撤销。"
        ),
        "Now in {id}, forked from {parent} at version {version}.": "当前对话 {id}，从 {parent} 的版本 {version} 分叉。",
        "Answering again in {id}; the first answer stays in {parent}.": "在 {id} 中重新回答；原来的回答保留在 {parent}。",
        "The notebook is empty.": "记忆笔记为空。",
        "notebook › ": "笔记 › ",
        "Notebook saved (version {version}).": "记忆笔记已保存（版本 {version}）。",
        "No system instruction.": "没有系统指令。",
        "system › ": "系统指令 › ",
        "System instruction saved (version {version}).": "系统指令已保存（版本 {version}）。",
        "Tools are disabled (--no-tools).": "工具已禁用（--no-tools）。",
        "approval": "需批准",
        "TOOL": "工具",
        "EFFECT": "影响",
        "DESCRIPTION": "说明",
        "No plans yet; ask for one.": "暂无计划，可以让模型创建。",
        "PLAN": "计划",
        "STATUS": "状态",
        "DONE": "完成",
        "TITLE": "标题",
        "(no title yet)": "（暂无标题）",
        "(no title)": "（无标题）",
        "New conversation with {model}.": "新对话，模型：{model}。",
        "CHANGED": "修改时间",
        "No other conversations.": "没有其他对话。",
        "Exported to {path}. Import it with `antiphon history import`.": (
            "已导出到 {path}，可用 `antiphon history import` 导入。"
        ),
        # MCP servers.
        "usage: {usage}": "用法：{usage}",
        "No MCP servers. Add one: {usage}": "没有 MCP 服务器。添加：{usage}",
        "Stored and switched off. Start it with /mcp enable {name}.": "已保存，未启用。用 /mcp enable {name} 启动。",
        "value of {name} (not shown) › ": "{name} 的值（不显示）› ",
        "MCP server {name} runs this command on your machine:": "MCP 服务器 {name} 会在本机运行此命令：",
        "run it? y/n › ": "运行？y/n › ",
        "Calls of {name}: {approval}.": "{name} 的调用：{approval}。",
        "{name}: {tools} tools, {resources} resources, {prompts} prompts.": (
            "{name}：{tools} 个工具，{resources} 个资源，{prompts} 个提示词。"
        ),
        "{name}: its tools are not known yet; /mcp test {name}": "{name}：还不知道它的工具，请用 /mcp test {name}",
        "tools: {count}": "工具：{count}",
        "SERVER": "服务器",
        "STATE": "状态",
        "APPROVAL": "批准",
        "COMMAND OR ADDRESS": "命令或地址",
        # The history tables.
        "VERSION": "版本",
        "KIND": "类型",
        "ROUND": "回合",
        "TIME": "时间",
        "TEXT": "内容",
        "CALLS": "调用",
        "({count} failed)": "（{count} 次失败）",
        "(rolled back) ": "（已回滚）",
        "no rounds yet": "还没有回合",
        # Saved pages.
        "Tool call": "工具调用",
        "End of the saved page · made with Antiphon": "保存的页面到此结束 · 由 Antiphon 制作",
        # Replays and comparisons.
        "let another model answer the last message too, and show both": "让另一个模型也回答上一条消息，并列显示两个回答",
        "usage: /compare MODEL; /model lists the models": "用法：/compare MODEL；用 /model 列出模型",
        "Still in {id} with {model}; /resume {other} continues the other answer.": (
            "仍在 {id}，模型为 {model}；用 /resume {other} 继续另一个回答。"
        ),
        "Replaying with {model} …": "正在用 {model} 重放……",
        "Run {tool} {arguments}? [y/N] ": "运行 {tool} {arguments}？[y/N] ",
        "{model} stopped: {tools} needs your decision; decide with `{command}`.": (
            "{model} 已停止：{tools} 需要你决定；用 `{command}` 决定。"
        ),
        "{model} stopped: {reason}.": "{model} 已停止：{reason}。",
        "{model} answered in {id}.": "{model} 的回答在 {id}。",
    }
)

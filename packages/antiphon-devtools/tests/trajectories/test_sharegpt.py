"""ShareGPT JSONL, judged by the layout that LLaMA-Factory documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from antiphon.history import AgentHistory, ModelInputEntry, ModelOutputEntry, SqliteStore, ToolCallResultsEntry
from antiphon.parts import Audio, Image, Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon_devtools.trajectories import TrajectoryExport, TurnFilter, WrittenTrajectory
from trajectories.example_history import PNG, example_history


def problems_of(example: dict[str, Any]) -> list[str]:
    """What LLaMA-Factory would refuse or misread about an example."""
    found: list[str] = []
    items = example["conversations"]
    for number, item in enumerate(items):
        allowed = ("gpt", "function_call") if number % 2 else ("human", "observation")
        if item["from"] not in allowed:
            found.append(f"item {number} is {item['from']}")
        if item.keys() != {"from", "value"} or not isinstance(item["value"], str):
            found.append(f"item {number} has other fields")
        if item["from"] == "function_call":
            calls = msgspec.json.decode(item["value"].rpartition("</think>\n\n")[2])
            listed = calls if isinstance(calls, list) else [calls]
            if not all(call.keys() == {"name", "arguments"} and isinstance(call["arguments"], dict) for call in listed):
                found.append(f"item {number} is not a call")
    if len(items) % 2 or not items:
        found.append("the last item is not the model's")
    for mark, field in (("<image>", "images"), ("<audio>", "audios")):
        marks = sum(item["value"].count(mark) for item in items)
        if marks != len(example.get(field, ())):
            found.append(f"{marks} marks for {len(example.get(field, ()))} {field}")
    tools = msgspec.json.decode(example.get("tools", "[]"))
    found += [f"not a tool: {tool}" for tool in tools if tool.keys() != {"name", "description", "parameters"}]
    if not isinstance(example.get("system", ""), str):
        found.append("system is not text")
    return found


def written(history: AgentHistory, **options: Any) -> tuple[dict[str, Any], WrittenTrajectory]:
    (result,) = TrajectoryExport("sharegpt", **options).write(history)
    assert result.body is not None
    assert problems_of(result.body) == []
    return result.body, result


def test_calls_and_results_alternate(tmp_path: Path) -> None:
    example, result = written(example_history(), media=tmp_path, keep=TurnFilter(finished=True))
    assert [item["from"] for item in example["conversations"]] == [
        *("human", "function_call", "observation", "gpt"),
        *("human", "gpt"),
        *("human", "function_call", "observation", "gpt"),
    ]
    calls = example["conversations"][1]["value"]
    assert calls.startswith("<think>\nTwo cities.\n</think>\n\n[")
    assert msgspec.json.decode(calls.rpartition("\n\n")[2])[1] == {
        "name": "weather",
        "arguments": {"city": "Bergen", "days": 2},
    }
    assert msgspec.json.decode(example["conversations"][2]["value"]) == ["Rain, 7 °C", "no such city"]
    assert example["system"] == "Be brief."
    assert [tool["name"] for tool in msgspec.json.decode(example["tools"])] == ["weather", "delete_file"]
    assert "turn 1: lost text beside calls: 'Let me look.': an item is text or calls" in result.notes


def test_images_are_files_with_a_mark_in_the_text(tmp_path: Path) -> None:
    example, _ = written(example_history(), media=tmp_path / "media")
    assert example["conversations"][0]["value"] == "今天奥斯陆下雨吗？ And Bergen?\n<image>"
    (path,) = map(Path, example["images"])
    assert path.parent == tmp_path / "media"
    assert path.suffix == ".png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_mode & 0o077 == 0


def test_without_a_folder_an_image_is_reported() -> None:
    example, result = written(example_history())
    assert "images" not in example
    assert "turn 1: lost image: it is not a file; --media FOLDER writes it to one" in result.notes


def test_an_image_with_an_address_needs_no_file() -> None:
    history = AgentHistory()
    history.append(ModelInputEntry.of("Look.", Image(url="https://example.com/lamp.png")))
    history.append(ModelOutputEntry.of("A lamp."))
    assert written(history)[0]["images"] == ["https://example.com/lamp.png"]


def test_neighbours_of_one_side_are_joined() -> None:
    call = ToolCallRequest("weather", "c1", "{}")
    history = AgentHistory()
    history.append(ModelInputEntry.of("Is it"))
    history.append(ModelInputEntry.of("raining?"))
    history.append(ModelOutputEntry.of("I look."))
    history.append(ModelOutputEntry.of(call))
    history.append(ToolCallResultsEntry((ToolCallResult.of(call, "Rain"),), "1 call succeeded"))
    history.append(ModelOutputEntry((Thinking("wet"), Text("Yes."))))
    example, result = written(history)
    assert [item["value"] for item in example["conversations"]] == [
        "Is it\n\nraining?",
        '{"name":"weather","arguments":{}}',
        "Rain\n\n1 call succeeded",
        "<think>\nwet\n</think>\n\nYes.",
    ]
    assert any("lost text beside calls: 'I look.'" in note for note in result.notes)


def test_broken_arguments_and_later_instructions_are_reported() -> None:
    call = ToolCallRequest("weather", "c1", '{"city": "Os')
    history = AgentHistory()
    history.append(ModelInputEntry.of("Is it raining?"))
    history.append(ModelOutputEntry.of(call))
    history.append(ToolCallResultsEntry((ToolCallResult.of(call, "not JSON"),)))
    history.append(ModelOutputEntry.of("Sorry."))
    history.set_system_instruction("Be kind.")
    history.append(ModelInputEntry.of("Try again.", Audio("audio/wav", "UklGRg==")))
    history.append(ModelOutputEntry.of("Dear."))
    example, result = written(history)
    assert '{"_raw":"{\\"city\\": \\"Os"}' in example["conversations"][1]["value"]
    assert example["conversations"][4]["value"] == "Be kind.\n\nTry again."
    notes = "\n".join(result.notes)
    assert "turn 1: lost call c1: the arguments of weather are not valid JSON" in notes
    assert "turn 2: system message written as human" in notes
    assert "turn 2: lost audio" in notes


def test_text_that_looks_like_a_mark_is_changed(tmp_path: Path) -> None:
    call = ToolCallRequest("draw", "c1", '{"html": "<image>"}')
    history = AgentHistory()
    history.append(ModelInputEntry.of("What is <image> in SVG?", Image("image/png", PNG)))
    history.append(ModelOutputEntry((Thinking("<audio>?"), call)))
    history.append(ToolCallResultsEntry((ToolCallResult.of(call, "<image>"),)))
    history.append(ModelOutputEntry.of("An element."))
    example, result = written(history, media=tmp_path)
    assert example["conversations"][0]["value"] == "What is [image] in SVG?\n<image>"
    assert len(example["images"]) == 1
    assert "turn 1: changed <image> in text to [image]: it would stand for a file" in result.notes


def test_an_answer_before_the_first_question_is_left_out() -> None:
    history = AgentHistory()
    history.append(ModelOutputEntry.of("Hello!"))
    history.append(ModelInputEntry.of("one"))
    history.append(ModelOutputEntry.of("1"))
    example, result = written(history)
    assert len(example["conversations"]) == 2
    assert any("before the first question" in note for note in result.notes)


def test_an_image_without_a_place_leaves_no_empty_question(tmp_path: Path) -> None:
    history = AgentHistory()
    history.append(ModelInputEntry.of(Image("image/png", PNG)))
    history.append(ModelOutputEntry.of("A lamp."))
    (result,) = TrajectoryExport("sharegpt").write(history)
    assert result.body is None
    example, _ = written(history, media=tmp_path)
    assert example["conversations"][0]["value"] == "<image>"


def test_branches_of_a_stored_conversation_have_ids_of_their_own(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "chats.db") as store:
        history = store.create()
        history.append(ModelInputEntry.of("one"))
        history.append(ModelOutputEntry.of("1"))
        history.rollback(1)
        history.append(ModelOutputEntry.of("uno"))
        bodies = [result.body for result in TrajectoryExport("sharegpt", branch="all").write(history)]
    assert [body and body["id"] for body in bodies] == [f"{history.id}@4", f"{history.id}@2"]

// Ollama's JavaScript client with one tool; streamed, then whole.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(createRequire(`${process.env.GATEWAY_INSTALLED}/`).resolve(name)).href);
const { GATEWAY_URL: host, GATEWAY_KEY: key, GATEWAY_MODEL: model } = process.env;
const { Ollama } = await load("ollama");
const client = new Ollama({ host, headers: { Authorization: `Bearer ${key}` } });
const note = await readFile("note.txt", "utf8");
const tools = [
  { type: "function", function: { name: "read_note", description: "Read the note.", parameters: { type: "object", properties: {} } } },
];

async function talk(streams) {
  const messages = [{ role: "user", content: "What does the note hold?" }];
  for (;;) {
    const answer = await client.chat({ model, messages, tools, stream: streams });
    let content = "";
    const calls = [];
    for await (const piece of streams ? answer : [answer]) {
      content += piece.message.content ?? "";
      calls.push(...(piece.message.tool_calls ?? []));
    }
    if (!calls.length) return content;
    messages.push({ role: "assistant", content, tool_calls: calls });
    messages.push(...calls.map((call) => ({ role: "tool", tool_name: call.function.name, content: note })));
  }
}

console.log((await client.list()).models.length);
console.log(await talk(true));
console.log("--\n", await talk(false));

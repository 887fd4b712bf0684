// The official SDK of each wire with one tool; streamed, then whole. The loop of calls is written out: the SDKs have none in common.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(createRequire(`${process.env.GATEWAY_INSTALLED}/`).resolve(name)).href);
const { GATEWAY_URL: url, GATEWAY_KEY: apiKey, GATEWAY_MODEL: model, GATEWAY_WIRE: wire } = process.env;
const note = await readFile("note.txt", "utf8");
const question = "What does the note hold?";
const name = "read_note";
const description = "Read the note of this folder.";
const schema = { type: "object", properties: {} };

async function chat(streams) {
  const { OpenAI } = await load("openai");
  const client = new OpenAI({ apiKey, baseURL: `${url}/v1` });
  const messages = [{ role: "user", content: question }];
  const tools = [{ type: "function", function: { name, description, parameters: schema } }];
  for (;;) {
    const asked = { model, messages, tools };
    const completion = streams
      ? await client.chat.completions.stream(asked).finalChatCompletion()
      : await client.chat.completions.create(asked);
    const message = completion.choices[0].message;
    if (!message.tool_calls?.length) return message.content;
    messages.push(message, ...message.tool_calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: note })));
  }
}

async function responses(streams) {
  const { OpenAI } = await load("openai");
  const client = new OpenAI({ apiKey, baseURL: `${url}/v1` });
  const input = [{ role: "user", content: question }];
  const tools = [{ type: "function", name, description, parameters: schema, strict: false }];
  for (;;) {
    const asked = { model, input, tools };
    const response = streams ? await client.responses.stream(asked).finalResponse() : await client.responses.create(asked);
    const calls = response.output.filter((item) => item.type === "function_call");
    if (!calls.length) return response.output_text;
    input.push(...response.output, ...calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: note })));
  }
}

async function anthropic(streams) {
  const { default: Anthropic } = await load("@anthropic-ai/sdk");
  const client = new Anthropic({ apiKey, baseURL: url });
  const messages = [{ role: "user", content: question }];
  const tools = [{ name, description, input_schema: schema }];
  for (;;) {
    const asked = { model, messages, tools, max_tokens: 1000 };
    const message = streams ? await client.messages.stream(asked).finalMessage() : await client.messages.create(asked);
    const calls = message.content.filter((block) => block.type === "tool_use");
    if (!calls.length) return message.content.map((block) => block.text).join("");
    messages.push({ role: "assistant", content: message.content });
    messages.push({ role: "user", content: calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: note })) });
  }
}

async function gemini(streams) {
  const { GoogleGenAI } = await load("@google/genai");
  const client = new GoogleGenAI({ apiKey, httpOptions: { baseUrl: url } });
  const config = { tools: [{ functionDeclarations: [{ name, description }] }] };
  const session = client.chats.create({ model, config });
  let message = question;
  for (;;) {
    let text = "";
    const calls = [];
    const answers = streams ? await session.sendMessageStream({ message }) : [await session.sendMessage({ message })];
    for await (const answer of answers) {
      text += answer.text ?? "";
      calls.push(...(answer.functionCalls ?? []));
    }
    if (!calls.length) return text;
    message = calls.map((call) => ({ functionResponse: { id: call.id, name: call.name, response: { output: note } } }));
  }
}

async function interactions(streams) {
  const { GoogleGenAI } = await load("@google/genai");
  const client = new GoogleGenAI({ apiKey, httpOptions: { baseUrl: url } });
  const tools = [{ type: "function", name, description, parameters: schema }];
  const input = [{ type: "user_input", content: [{ type: "text", text: question }] }];
  for (;;) {
    const asked = { model, input, tools, store: false };
    const steps = streams
      ? await assembled(await client.interactions.create({ ...asked, stream: true }))
      : (await client.interactions.create(asked)).steps;
    const calls = steps.filter((step) => step.type === "function_call");
    if (!calls.length) return steps.flatMap((step) => step.content ?? []).map((part) => part.text).join("");
    input.push(...steps, ...calls.map((call) => ({ type: "function_result", call_id: call.id, name: call.name, result: note })));
  }
}

async function assembled(events) {
  const steps = [];
  for await (const event of events) {
    if (event.event_type === "step.start") steps[event.index] = { ...event.step, json: "" };
    const step = steps[event.index];
    const delta = event.event_type === "step.delta" ? event.delta : {};
    if (delta.type === "text") step.content = [{ type: "text", text: (step.content?.[0]?.text ?? "") + delta.text }];
    if (delta.arguments !== undefined) step.json += delta.arguments;
  }
  return steps.map(({ json, ...step }) => (json ? { ...step, arguments: JSON.parse(json) } : step));
}

const talk = { "openai-chat": chat, "openai-responses": responses, anthropic, gemini, "gemini-interactions": interactions }[wire];
console.log(await talk(true));
console.log("--\n", await talk(false));

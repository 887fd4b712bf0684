// An agent of the OpenAI Agents SDK with one tool, on the wire named by GATEWAY_WIRE; streamed, then whole.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(createRequire(`${process.env.GATEWAY_INSTALLED}/`).resolve(name)).href);
const { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, run, setTracingDisabled, tool } = await load("@openai/agents");
const { OpenAI } = await load("openai");
const { z } = await load("zod");
const { GATEWAY_URL: url, GATEWAY_KEY: apiKey, GATEWAY_MODEL: model, GATEWAY_WIRE: wire } = process.env;

setTracingDisabled(true);
const client = new OpenAI({ apiKey, baseURL: `${url}/v1` });
const kind = wire === "openai-responses" ? OpenAIResponsesModel : OpenAIChatCompletionsModel;
const readNote = tool({
  name: "read_note",
  description: "Read the note of this folder.",
  parameters: z.object({}),
  execute: () => readFile("note.txt", "utf8"),
});
const agent = new Agent({ name: "Reader", tools: [readNote], model: new kind(client, model) });
const streamed = await run(agent, "What does the note hold?", { stream: true });
streamed.toTextStream({ compatibleWithNodeStreams: true }).pipe(process.stdout, { end: false });
await streamed.completed;
console.log("\n--\n", (await run(agent, "What does the note hold?")).finalOutput);

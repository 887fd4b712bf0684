// The Vercel AI SDK with one tool, on the wire named by GATEWAY_WIRE; streamed, then whole.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(createRequire(`${process.env.GATEWAY_INSTALLED}/`).resolve(name)).href);
const { generateText, isStepCount, stepCountIs, streamText, tool } = await load("ai");
const { z } = await load("zod");
const { GATEWAY_URL: url, GATEWAY_KEY: apiKey, GATEWAY_MODEL: name, GATEWAY_WIRE: wire } = process.env;

const models = {
  "openai-chat": async () => (await load("@ai-sdk/openai")).createOpenAI({ apiKey, baseURL: `${url}/v1` }).chat(name),
  "openai-responses": async () => (await load("@ai-sdk/openai")).createOpenAI({ apiKey, baseURL: `${url}/v1` }).responses(name),
  anthropic: async () => (await load("@ai-sdk/anthropic")).createAnthropic({ apiKey, baseURL: `${url}/v1` })(name),
  gemini: async () => (await load("@ai-sdk/google")).createGoogleGenerativeAI({ apiKey, baseURL: `${url}/v1beta` })(name),
};
const asked = {
  model: await models[wire](),
  prompt: "What does the note hold?",
  stopWhen: (stepCountIs ?? isStepCount)(5),
  tools: {
    read_note: tool({
      description: "Read the note of this folder.",
      inputSchema: z.object({}),
      execute: () => readFile("note.txt", "utf8"),
    }),
  },
};
for await (const piece of streamText(asked).textStream) process.stdout.write(piece);
console.log("\n--\n", (await generateText(asked)).text);

/* What the server sends, for the type checker (`make page-types`). The page itself is plain JavaScript and loads nothing from here. */

/** A part of a message, as `/chat/api` gives it. */
interface Part {
  type: string;
  text?: string;
  data?: string;
  url?: string;
  name?: string;
  media_type?: string;
  tool_name?: string;
  tool_call_id?: string;
  arguments?: string;
  freeform?: boolean;
}

interface ToolCall {
  tool_name: string;
  tool_call_id: string;
  arguments: string;
  freeform?: boolean;
}

interface ToolResult {
  tool_call_id: string;
  status?: string;
  content?: Part[];
}

/** An entry of the log; which further fields it has depends on `kind`. */
interface Entry {
  kind: string;
  sequence_number: number;
  timestamp?: string;
  effective?: boolean;
  [field: string]: any;
}

/** What the cache doctor found about the request of an answer. */
interface CacheFinding {
  sequence_number: number;
  verdict: string;
  prompt_tokens: number;
  predicted_tokens: number;
  cached_tokens: number | null;
  lost_tokens: number;
  lost_usd: string | null;
  minimum: number;
  difference: { path: string; change: string; byte: number; before?: string; after?: string } | null;
}

/** The limits of a turn; `null` is none. */
interface Limits {
  max_rounds: number | null;
  max_failed_rounds: number | null;
  seconds: number | null;
}

/** Why a turn failed. */
interface Failure {
  provider: string;
  model: string;
  message: string;
  kind: string;
  status: number | null;
  attempts: number;
  is_partial: boolean;
  key_variables: string[];
}

/** A place to get a model from, as `GET /chat/api/models` gives it. */
interface ModelSource {
  kind: string;
  provider: string;
  model: string;
  models: string[];
  variable: string;
  is_stored: boolean;
  is_ready: boolean;
}

/** The tokens of model calls. */
interface Usage {
  prompt_tokens?: number;
  completion_tokens?: number;
  total_tokens?: number;
}

/** One model call in a comparison; `null` is not known. */
interface ComparedStep {
  model: string;
  answer: string;
  calls: { tool_name: string; arguments: string; status: string; source: string }[];
  usage: Usage | null;
  cost: string | null;
  seconds: number | null;
  is_same: boolean;
}

/** The totals of one conversation in a comparison. */
interface ComparedBranch {
  conversation: string;
  models: string[];
  rounds: number;
  calls: number;
  usage: Usage | null;
  cost: string | null;
  seconds: number | null;
  stopped: string;
  detail: string;
}

/** Conversations beside each other, as `GET /chat/api/conversations/ID/comparison` gives them. */
interface Comparison {
  branches: ComparedBranch[];
  steps: { turn: number; round: number; question: string; steps: (ComparedStep | null)[] }[];
}

interface McpTool {
  name: string;
  description: string;
  effect: string;
  approval: string;
}

/** An MCP server, as `GET /chat/api/mcp` gives it; no secret is in it. */
interface McpServer {
  name: string;
  kind: "command" | "address" | "file";
  where: string;
  folder: string;
  variables: string[];
  headers: string[];
  is_fixed: boolean;
  is_enabled: boolean;
  is_confirmed: boolean;
  digest: string;
  approval: string;
  state: string;
  error: string;
  restarts: number;
  tools: McpTool[];
}

/** What a test of a server found, or why it cannot be used. */
interface McpReport {
  tools: McpTool[];
  resources: string[];
  prompts: string[];
  error: string;
}

/** What a tool did, as `GET /chat/api/tools` gives it. */
interface ToolStatistics {
  tool: string;
  calls: number;
  failed: number;
  skipped: number;
  unfinished: number;
  cached: number;
  conversations: number;
  seconds: number;
  timed: number;
  slowest: number | null;
  mean_seconds: number | null;
  last: string | null;
}

/** Where conversations differ: after entry `at`. */
interface BranchPoint {
  at: number;
  conversations: string[];
  current: number;
}

/** What model calls used and cost, in dollars. */
interface Spending {
  usage: { prompt_tokens?: number; completion_tokens?: number; cached_tokens?: number };
  cost: string;
  by_model: Record<string, string>;
  calls: number;
  unpriced_calls: number;
}

/** A conversation as `GET /chat/api/conversations/{id}` gives it. */
interface ConversationState {
  info: { id: string; title: string; is_pinned: boolean; labels: string[] };
  entries: Entry[];
  pending: ToolCall[];
  running: boolean;
  unfinished: boolean;
  failure: Failure | null;
  model: string;
  system: string | null;
  memory: string | null;
  limits: Limits;
  tokens?: number;
  token_limit?: number;
  spending: Spending;
  last_event: string;
}

interface Task {
  id: string;
  title: string;
  done: boolean;
  due?: string;
  notes?: string;
}

interface Plan {
  id: string;
  title: string;
  goal?: string;
  status: string;
  version: number;
  tasks: Task[];
}

/** A message that is not sent yet; `queued` waits for the end of an answer. */
interface Draft {
  text: string;
  parts: Part[];
  queued: Part[] | null;
}

interface ConversationHandlers {
  loaded(state: ConversationState): void;
  event(name: string, data: any): void;
  changed(state: ConversationState): void;
  broken(): void;
  restored(): void;
  gone(): void;
}

/** What `element` accepts as a child. */
type Child = Node | string | number | null | undefined | false | Child[];

// @ts-check
/* Plans as the plan tools write them: Markdown for the model, and after it the same plans as one line of JSON in a fence. The
 * line is searched from the end, so the text of a title cannot be mistaken for it. */

const TOOLS = new Set(["create_plan", "list_plans", "get_plan", "update_plan", "delete_plan"]);
const DATA = /(?:^|\n)```json\n(\{[^\n]*\})\n```\s*$/;

/** The plans in a call's result. */
export function plansOf(toolName, text) {
  const found = TOOLS.has(toolName) ? DATA.exec(text) : null;
  if (found === null) return [];
  try {
    const data = JSON.parse(found[1]);
    return (data.plans ?? [data.plan]).filter((plan) => plan && typeof plan.id === "string" && Array.isArray(plan.tasks));
  } catch {
    return [];
  }
}

/** The text a person reads: without the line meant for machines. */
export function withoutPlanData(text) {
  return text.replace(DATA, "");
}

// @ts-check
/* The page as a whole: the address decides what is shown (`#/c/<id>`, `#/c/<id>/history`, `#/plans`, `#/mcp`, else a new conversation),
 * and the components are connected here only. */

import CHINESE from "./texts/zh.json";
import ENGLISH from "./texts/en.json";
import { Api } from "./ui/api.js";
import { switchAppearance } from "antiphon/appearance.js";
import { askForModel, CompareView } from "./chat/compare_view.js";
import { Composer } from "./chat/composer.js";
import { askForKey, cancelling, confirming, editSettings, labelled, show, showShortcuts } from "./ui/dialogs.js";
import { brandMark, byId, element, fill } from "antiphon/dom.js";
import { draftOf } from "./chat/drafts.js";
import { HistoryView } from "./history/history_view.js";
import { modelTitle, textOf } from "./chat/messages.js";
import { ModelMenu } from "./chat/model_menu.js";
import { askForProviderKey, sourceCard } from "./chat/model_sources.js";
import { announce, notice, setBanner, SHOWN, showError, showFault } from "./ui/notifications.js";
import { OpenConversation } from "./chat/open_conversation.js";
import { McpView } from "./settings/mcp_view.js";
import { ToolStatisticsCard } from "./settings/tool_statistics.js";
import { PlanCard } from "./plans/plan_card.js";
import { Sidebar } from "./chat/sidebar.js";
import { Thread } from "./chat/thread.js";
import { showTokens, showUsage } from "./chat/token_meter.js";
import { currentLanguage, hasText, say, translatePage, switchLanguage, useTexts } from "antiphon/texts.js";

useTexts({ en: ENGLISH, zh: CHINESE });

const TOUR = "offline/plain";
/** The views that are not of the open conversation, with the keys of their titles; the others are titled as it is. */
const TITLES = { plans: "plans", compare: "compareTitle", mcp: "mcpLink" };
const VIEWS = ["chat", "history", ...Object.keys(TITLES)];

/** A part of the address; one that is not encoded as the page does it stays as it is, and leads nowhere. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const addressOf = (id, view = "") => `#/c/${encodeURIComponent(id)}${view}`;

/** The default model, why it is the default and how to change it, in the page's language. */
function choiceLine(choice) {
  if (choice === null) return "";
  const kind = choice.kind === "keys" ? "key" : choice.kind;
  const [reason, hint] = kind
    ? [say(`choice_${kind}`, choice.values), say(`choice_${kind}_hint`, choice.values)]
    : [choice.what, choice.how];
  return say("choiceLine", { model: modelTitle(choice.model), reason, hint });
}

class Page {
  constructor() {
    this.api = new Api(askForKey);
    byId("brand").prepend(brandMark());
    /** @type {OpenConversation | null} */
    this.conversation = null;
    /** @type {Map<string | null, OpenConversation>} */
    this.sendingLater = new Map();
    this.model = "";
    /** The title of the conversation that is compared. */
    this.comparedTitle = "";
    this.defaultModel = "";
    /** @type {any} why the default model is the default */
    this.defaultChoice = null;
    /** @type {ModelSource[]} */
    this.sources = [];
    /** @type {string[]} the providers that a key can be pasted for */
    this.keyProviders = [];
    /** @type {Record<string, any>} what is known of each model */
    this.facts = {};
    this.sidebar = new Sidebar(this.api, {
      rename: (row) => this.reporting(() => this.rename(row)),
      pin: (row) => this.reporting(() => this.pin(row)),
      remove: (row) => this.remove(row),
    });
    this.menu = new ModelMenu({
      choose: (model) => this.switchModel(model),
      opened: () => this.loadSources(),
      pasteKey: () => this.reporting(() => this.pasteKey()),
    });
    this.historyView = new HistoryView(this.api, byId("history"), (step) => this.reporting(() => this.replay(step)));
    this.composer = new Composer({
      send: (content, interrupts) => this.send(content, interrupts),
      stop: () => this.stop(),
    });
    this.thread = new Thread(
      this.api,
      byId("thread"),
      {
        edit: (entry, text) => this.editInBranch(entry, text),
        regenerate: (entry) => this.reporting(() => this.regenerate(entry)),
        compare: (entry) => this.reporting(() => this.compare(entry)),
        open: (id) => (location.hash = addressOf(id)),
        fork: (version) => this.reporting(() => this.fork(version)),
        rollBack: (to) => this.reporting(() => this.api.post(`${this.opened.path}/rollback`, { to })),
        decide: (call, decision) =>
          this.api.post(`${this.opened.path}/decisions`, { tool_call_id: call.tool_call_id, ...decision }),
        resume: () => this.reporting(() => this.api.post(`${this.opened.path}/resume`)),
        chooseModel: () => setTimeout(() => this.menu.open()), // after the click, which closes an open menu
      },
      byId("to-latest"),
    );
    this.compareView = new CompareView(this.api, byId("compare"), (info) => {
      this.comparedTitle = info.title;
      this.showTitle();
    });
    this.mcpView = new McpView(this.api, byId("mcp-servers"));
    this.toolCard = new ToolStatisticsCard(this.api, byId("tool-statistics"));
    this.hasMcp = Promise.resolve(false);
  }

  /** The open conversation, for actions that are offered only while there is one. */
  get opened() {
    if (this.conversation === null) throw new Error("no conversation is open");
    return this.conversation;
  }

  async start() {
    translatePage();
    this.listen();
    this.sidebar.load();
    const loading = this.api.get("state");
    this.hasMcp = loading.then(
      (state) => state.has_mcp,
      () => false,
    );
    // Follow the address first, so that the right draft is in the box before the user types.
    const routed = this.route();
    try {
      const state = await loading;
      this.defaultModel = state.choice.model;
      this.model ||= state.choice.model;
      this.defaultChoice = state.choice;
      this.menu.offer(state.models, choiceLine(state.choice));
      this.menu.show(this.model);
      if (this.isWelcoming) this.welcome();
      if (this.defaultModel === TOUR) await this.loadSources();
    } catch (error) {
      showError(error);
    }
    await routed;
  }

  listen() {
    addEventListener("hashchange", () => this.route());
    addEventListener("error", (event) => showFault(event.error ?? event.message));
    addEventListener("unhandledrejection", (event) => showFault(event.reason));
    addEventListener("offline", () => setBanner("network", say("offline")));
    addEventListener("online", () => setBanner("network", null));
    document.addEventListener("language", () => this.redraw());
    document.addEventListener("keydown", (event) => this.onKey(event));
    byId("skip").addEventListener("click", (event) => {
      event.preventDefault(); // the address selects the view, not the focus
      this.composer.focus();
    });
    byId("new-chat").addEventListener("click", () => this.newChat());
    const picker = byId("import-file");
    byId("import").addEventListener("click", () => picker.click());
    picker.addEventListener("change", () => this.reporting(() => this.import(picker)));
    byId("menu").addEventListener("click", () => this.openSidebar(!document.body.classList.contains("with-sidebar")));
    byId("veil").addEventListener("click", () => this.openSidebar(false));
    byId("conversations").addEventListener("click", (event) => {
      if (event.target.closest("a")) this.openSidebar(false); // the one that is shown already changes no address
    });
    byId("appearance").addEventListener("click", switchAppearance);
    byId("language").addEventListener("click", switchLanguage);
    byId("shortcuts").addEventListener("click", showShortcuts);
    byId("settings").addEventListener("click", () => this.reporting(() => this.settings()));
    byId("usage").addEventListener("click", () => showUsage(this.opened.loadedState.spending));
    byId("compact").addEventListener("click", () => this.reporting(() => this.compact()));
    for (const one of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-export]")))
      one.addEventListener("click", () => this.reporting(() => this.export(one.dataset.export ?? "jsonl")));
    byId("pin").addEventListener("click", () => this.reporting(() => this.pin()));
    byId("delete").addEventListener("click", () => this.remove());
    const more = byId("more");
    more.addEventListener("click", (event) => {
      if (event.target.closest(".menu")) more.open = false;
    });
    document.addEventListener("click", (event) => {
      if (!more.contains(event.target)) more.open = false;
    });
  }

  /** Show the view in the address. */
  async route() {
    const [, kind, id, view] = /^#\/(c|plans|mcp|compare)(?:\/([^/]+))?(?:\/([^/]+))?$/.exec(location.hash) ?? [];
    const address = location.hash;
    this.openSidebar(false);
    const shown = kind && kind !== "c" ? kind : view === "history" ? view : "chat";
    for (const name of VIEWS) byId(name).hidden = name !== shown;
    document.body.dataset.view = shown;
    this.mcpView.close();
    this.compareView.close();
    if (shown in TITLES) {
      this.showTabs(null);
      this.showTitle();
      this.sidebar.current(kind === "compare" && id ? decoded(id) : "");
      if (kind === "plans") return this.showPlans();
      if (kind === "mcp") return this.showTools();
      this.comparedTitle = "";
      return this.compareView.show([id, view].map(decoded));
    }
    const wanted = kind === "c" && id ? decoded(id) : null;
    this.sidebar.current(wanted ?? "");
    if (wanted !== (this.conversation?.id ?? null) || wanted === null) await this.open(wanted);
    if (location.hash !== address) return null; // another view was chosen meanwhile
    this.showTitle();
    this.showTabs(wanted, shown);
    if (shown === "history" && this.conversation?.state) await this.historyView.show(this.conversation);
    if (shown === "chat" && matchMedia("(hover: hover)").matches) this.composer.focus();
    return null;
  }

  showTabs(id, shown) {
    byId("views").hidden = id === null;
    byId("more").hidden = id === null;
    if (id === null) return;
    for (const [name, view] of [
      ["to-chat", ""],
      ["to-history", "/history"],
    ]) {
      byId(name).setAttribute("href", addressOf(id, view));
      if ((view === "") === (shown === "chat")) byId(name).setAttribute("aria-current", "page");
      else byId(name).removeAttribute("aria-current");
    }
  }

  async open(id) {
    this.leave();
    this.sendingLater.get(id)?.close();
    this.sendingLater.delete(id);
    this.thread.clear();
    this.composer.open(id ?? "new");
    if (id === null) {
      this.showModel(this.defaultModel);
      showTokens(byId("meter"), null);
      this.welcome();
      return;
    }
    const conversation = new OpenConversation(this.api, id, {
      loaded: (state) => this.loaded(conversation, state),
      event: (name, data) => this.onEvent(conversation, name, data),
      changed: (state) => this.changed(state),
      broken: () => setBanner("connection", say("reconnecting")),
      restored: () => {
        setBanner("connection", null);
        notice(say("reconnected"));
      },
      gone: () => {
        notice(say("gone"), true);
        location.hash = "#/";
        this.sidebar.load();
      },
    });
    this.conversation = conversation;
    try {
      await conversation.load();
    } catch (error) {
      showError(error.status === 404 ? new Error(say("gone")) : error);
      if (error.status === 404) location.hash = "#/";
    }
  }

  /** Close the conversation; one with a queued message is followed until its answer ends, and the message is sent then. */
  leave() {
    const left = this.conversation;
    this.conversation = null;
    if (!left?.isRunning || draftOf(left.id).queued === null) return left?.close();
    const sendIfFree = () => {
      if (left.isRunning) return;
      left.close();
      this.sendingLater.delete(left.id);
      const content = this.composer.takeQueued(left.id);
      if (content === null) return;
      this.api
        .post(`${left.path}/turns`, { content })
        .then(() => this.sidebar.load())
        .catch((error) => this.composer.giveBack(left.id, content, error));
    };
    this.sendingLater.set(left.id, left);
    left.setHandlers({
      loaded: sendIfFree,
      event: sendIfFree,
      changed() {},
      broken() {},
      restored() {},
      gone: () => this.sendingLater.delete(left.id),
    });
    return null;
  }

  loaded(conversation, state) {
    this.thread.show(conversation.path, state);
    byId("thread").classList.remove("welcoming");
    this.showBranches(conversation);
    this.sidebar.takeFound(conversation.id, (found) => this.thread.showFound(found));
    this.changed(state);
    this.composer.running(state.running);
    document.body.classList.toggle("running", state.running);
  }

  onEvent(conversation, name, data) {
    this.thread.handle(name, data);
    this.composer.running(conversation.isRunning);
    document.body.classList.toggle("running", conversation.isRunning);
    if (name === "TurnStarted") this.sidebar.load();
    if (name === "TitleWritten") {
      conversation.loadedState.info.title = data.title;
      this.showTitle();
      this.sidebar.load();
    }
    if (name === "LoopFinished" && !byId("history").hidden) this.historyView.show(conversation);
  }

  changed(state) {
    this.showTitle();
    byId("pin").dataset.say = state.info.is_pinned ? "unpin" : "pin";
    fill(byId("pin"), say(byId("pin").dataset.say));
    this.showModel(state.model);
    showTokens(byId("meter"), state);
    this.thread.changed(state);
    this.sidebar.load();
  }

  redraw() {
    this.showTitle();
    this.sidebar.load();
    this.menu.describe(choiceLine(this.defaultChoice));
    this.menu.show(this.model);
    this.composer.running(this.conversation?.isRunning ?? false);
    if (this.conversation?.state) this.conversation.load().catch(showError);
    else if (document.body.dataset.view === "chat") this.welcome();
    if (document.body.dataset.view === "history") this.historyView.show(this.conversation);
    if ((document.body.dataset.view ?? "") in TITLES) this.route();
  }

  /** The title of the view, or of the conversation that it shows. */
  showTitle() {
    const key = TITLES[document.body.dataset.view ?? ""];
    const isComparing = key === "compareTitle" && this.comparedTitle;
    const title = isComparing
      ? say("compareOf", { title: this.comparedTitle })
      : key
        ? say(key)
        : this.conversation?.state?.info.title;
    fill(byId("title"), title || say("untitled"));
    document.title = title ? `${title} · Antiphon` : "Antiphon";
  }

  showModel(model) {
    this.model = model;
    if (model) this.menu.show(model);
  }

  get isWelcoming() {
    return this.conversation === null && document.body.dataset.view === "chat";
  }

  /** Load the sources of models; servers on this machine are looked for meanwhile. */
  async loadSources() {
    const { sources, key_providers: providers, facts } = await this.api.get("models").catch((error) => {
      showError(error);
      return { sources: this.sources, key_providers: this.keyProviders, facts: this.facts };
    });
    this.showSources(sources, providers, facts);
  }

  showSources(sources, providers, facts = this.facts) {
    this.facts = facts;
    this.sources = sources;
    this.keyProviders = providers;
    this.menu.offerSources(sources, providers.length > 0, facts);
    if (this.isWelcoming) this.welcome();
  }

  async pasteKey() {
    const forget = (provider) =>
      this.reporting(async () => {
        const { sources } = await this.api.delete(`keys/${encodeURIComponent(provider)}`);
        notice(say("keyForgotten", { provider }));
        this.showSources(sources, this.keyProviders);
      });
    const given = await askForProviderKey(this.keyProviders, this.sources, forget);
    if (given === null) return;
    const { model, sources } = await this.api.post("keys", given);
    notice(say("keyAdded", { provider: given.provider }));
    this.showSources(sources, this.keyProviders);
    if (model) await this.switchModel(model);
  }

  welcome() {
    byId("thread").classList.add("welcoming");
    const isTour = this.defaultModel === TOUR;
    const offers = isTour ? ["tour_1", "tour_2", "tour_3", "tour_4"] : ["offer_1", "offer_2", "offer_file"];
    const act = (key) => () => (key === "offer_file" ? byId("attach").click() : this.composer.submit(say(key)));
    const model = this.model || this.defaultModel;
    const lead = model === TOUR ? say("leadTour") : model && say("leadModel", { model: modelTitle(model) });
    fill(
      byId("thread"),
      element(
        "div",
        { class: "welcome" },
        element("h2", {}, say("welcome")),
        element("p", { class: "lead", title: choiceLine(this.defaultChoice) }, lead),
        element(
          "div",
          { class: "offers" },
          element("p", { class: "quiet" }, say("orBegin")),
          offers.map((key) =>
            element(
              "button",
              { type: "button", class: "offer", onclick: act(key) },
              element("b", {}, say(key)),
              hasText(`${key}_hint`) && element("span", { class: "quiet" }, say(`${key}_hint`)),
            ),
          ),
        ),
        isTour &&
          this.keyProviders.length > 0 &&
          sourceCard(this.sources, this.model, {
            choose: (chosen) => this.switchModel(chosen),
            pasteKey: () => this.reporting(() => this.pasteKey()),
            // after the click, which closes an open menu
            search: (provider) => setTimeout(() => this.menu.search(provider)),
          }),
      ),
    );
    this.thread.showBeginning();
  }

  async showPlans() {
    const { plans } = await this.api.get("plans").catch((error) => {
      showError(error);
      return { plans: [] };
    });
    fill(
      byId("plans"),
      plans.length
        ? plans.map((plan) => new PlanCard(this.api, plan).node)
        : element("p", { class: "quiet empty" }, say("noPlans")),
    );
  }

  /** The MCP servers, where they can be changed, and what the tools did. */
  async showTools() {
    const shown = this.toolCard.show();
    const hasMcp = await this.hasMcp;
    byId("mcp-servers").hidden = !hasMcp;
    if (hasMcp && document.body.dataset.view === "mcp") await this.mcpView.show();
    return shown;
  }

  /** Send a message; a new conversation begins with it. */
  async send(content, interrupts) {
    if (this.conversation === null) {
      const { id } = await this.api.post("conversations", { model: this.model || undefined });
      await this.api.post(`conversations/${encodeURIComponent(id)}/turns`, { content });
      history.replaceState(null, "", addressOf(id));
      await this.route(); // opens the conversation
      const last = /** @type {OpenConversation | null} */ (this.conversation)?.state?.entries.at(-1);
      if (last?.kind === "model_output") announce(textOf(last.content)); // the answer was faster than the page
      return;
    }
    this.thread.follow();
    await this.api.post(`${this.opened.path}/turns`, { content, ...(interrupts && { interrupt: true }) });
  }

  /** Stop the answer. What waits for its end goes back into the box: stopping sends nothing. */
  async stop() {
    this.composer.takeBack();
    if (this.conversation?.isRunning) await this.reporting(() => this.api.post(`${this.opened.path}/interrupt`));
  }

  async switchModel(model) {
    const before = this.model;
    this.showModel(model);
    if (this.isWelcoming) this.welcome();
    if (this.conversation === null) return;
    try {
      await this.api.patch(this.opened.path, { model });
    } catch (error) {
      this.showModel(before);
      showError(error);
    }
  }

  async fork(version) {
    const { id } = await this.api.post(`${this.opened.path}/fork`, { at: version });
    location.hash = addressOf(id);
    this.sidebar.load();
    return id;
  }

  /** Start a turn in a branch of the open conversation; gives its id. */
  async branch(request) {
    const { id } = await this.api.post(`${this.opened.path}/branches`, request);
    this.sidebar.load();
    return id;
  }

  /** Replace an old message, in a branch from just before it. */
  editInBranch(entry, text) {
    return this.reporting(async () => {
      const conversation = this.opened.id;
      // Attachments are already stored: they are sent by reference, whatever their size.
      const attached = entry.content.flatMap((part, index) =>
        part.type === "text" ? [] : [{ type: "part", conversation, entry: entry.sequence_number, part: index }],
      );
      const content = [{ type: "text", text }, ...attached];
      location.hash = addressOf(await this.branch({ at: entry.sequence_number - 1, content }));
    });
  }

  /** The number of the message that an output answers. */
  questionOf(entry) {
    const asked = this.opened.loadedState.entries.filter(
      (one) => one.kind === "model_input" && one.effective !== false && one.sequence_number < entry.sequence_number,
    );
    return asked.at(-1)?.sequence_number ?? 0;
  }

  /** Answer a message again, in a branch; the answer that is there is kept. */
  async regenerate(entry) {
    location.hash = addressOf(await this.branch({ at: this.questionOf(entry) }));
  }

  /** Let another model answer the same message, and show both. */
  async compare(entry) {
    await this.replay(`entry:${this.questionOf(entry)}`, { turns: 1 });
  }

  /** Let another model answer again from a step on, with results from the log, and show both. */
  async replay(step, limits = {}) {
    await this.loadSources();
    const wanted = await askForModel(this.menu.models, this.model, !("turns" in limits));
    if (!wanted) return;
    const here = this.opened.id;
    const { id } = await this.api.post(`${this.opened.path}/replays`, { from: step, ...wanted, ...limits });
    this.sidebar.load();
    location.hash = `#/compare/${encodeURIComponent(here)}/${encodeURIComponent(id)}`;
  }

  async showBranches(conversation) {
    const { points } = await this.api.get(`${conversation.path}/branches`).catch(() => ({ points: [] }));
    if (this.conversation === conversation) this.thread.showBranches(points);
  }

  async settings() {
    const { info, system, memory, limits } = this.opened.loadedState;
    const changed = await editSettings({ title: info.title, system, memory, limits, tags: info.labels });
    if (!changed || !Object.keys(changed).length) return;
    await this.api.patch(this.opened.path, changed);
    notice(say("saved"));
    await this.opened.refresh();
  }

  async compact() {
    setBanner("compacting", say("compacting"));
    try {
      await this.api.post(`${this.opened.path}/compact`);
      await this.opened.refresh();
    } finally {
      setBanner("compacting", null);
    }
  }

  /** The conversation as a file. It is fetched and not linked to, so that the key goes along in its header. */
  async export(format) {
    const query = new URLSearchParams({ format, language: currentLanguage() });
    const response = await this.api.request("GET", `${this.opened.path}/export?${query}`);
    const address = URL.createObjectURL(await response.blob());
    const ending = { markdown: "md" }[format] ?? format;
    const link = element("a", { download: `${this.opened.loadedState.info.title || "conversation"}.${ending}` });
    link.href = address;
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }

  /** Change a conversation of the list; the one that is open is read again. */
  async change(id, what) {
    await this.api.patch(`conversations/${encodeURIComponent(id)}`, what);
    if (this.conversation?.id === id) await this.opened.refresh();
    this.sidebar.load();
  }

  async pin(row = this.opened.loadedState.info) {
    await this.change(row.id, { pinned: !row.is_pinned });
  }

  async rename(row) {
    const field = element("input", { type: "text", value: row.title, required: true });
    const answer = await show(say("rename"), [labelled(say("title"), field)], [cancelling(), confirming(say("save"))], {
      class: "small",
    });
    if (answer === "yes" && field.value.trim()) await this.change(row.id, { title: field.value.trim() });
  }

  /** Delete a conversation: it leaves the list at once, and the store when the notice that offers to undo it is gone. */
  remove(row = this.opened.loadedState.info) {
    const path = `conversations/${encodeURIComponent(row.id)}`;
    this.sidebar.hide(row.id, true);
    if (this.conversation?.id === row.id) location.hash = "#/";
    let isKept = false;
    const finish = () => {
      clearTimeout(timer);
      removeEventListener("pagehide", finish);
      if (isKept) return this.sidebar.hide(row.id, false);
      return this.reporting(async () => {
        await this.api.delete(path);
        await this.sidebar.load();
        this.sidebar.hide(row.id, false);
      });
    };
    const timer = setTimeout(finish, SHOWN);
    addEventListener("pagehide", finish);
    const undo = () => {
      isKept = true;
      finish();
    };
    notice(say("deleted", { title: row.title || say("untitled") }), false, { label: say("undo"), act: undo });
  }

  /** Take a conversation in from a file, and show it. */
  async import(picker) {
    const [file] = picker.files;
    picker.value = ""; // so that the same file can be chosen again
    const { id } = await this.api.post("imports", { name: file.name, text: await file.text() });
    notice(say("imported"));
    this.sidebar.load();
    location.hash = addressOf(id);
  }

  newChat() {
    if (location.hash === "#/") this.route();
    else location.hash = "#/";
    this.composer.focus();
  }

  openSidebar(isOpen) {
    document.body.classList.toggle("with-sidebar", isOpen);
    byId("menu").setAttribute("aria-expanded", String(isOpen));
    if (isOpen) byId("search").focus();
  }

  async reporting(act) {
    try {
      await act();
    } catch (error) {
      showError(error);
    }
  }

  onKey(event) {
    if (event.isComposing || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
    const isTyping = event.target.closest?.("input, textarea, select");
    const act = event.altKey
      ? {
          KeyN: () => this.newChat(),
          KeyK: () => {
            this.openSidebar(true);
            this.sidebar.focusSearch();
          },
          KeyM: () => this.menu.open(),
          KeyH: () => {
            if (this.conversation)
              location.hash = addressOf(this.conversation.id, document.body.dataset.view === "history" ? "" : "/history");
          },
        }[event.code]
      : event.key === "Escape"
        ? () => this.escape()
        : isTyping
          ? null
          : { "/": () => this.composer.focus(), "?": showShortcuts }[event.key];
    if (!act) return;
    if (event.key !== "Escape") event.preventDefault();
    act();
  }

  escape() {
    if (document.body.classList.contains("with-sidebar")) this.openSidebar(false);
    else if (byId("more").open) byId("more").open = false;
    else this.stop();
  }
}

new Page().start();

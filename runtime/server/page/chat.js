// Draws the conversation and runs requests.

import { events } from "./api.js";
import { Conversation } from "./conversation.js";
import { settings } from "./settings.js";
import { hideTip, showTip } from "./tip.js";

const list = document.getElementById("turns");
const prompt = document.getElementById("prompt");
const send = document.getElementById("send");
const stop = document.getElementById("stop");

let conversation = new Conversation();
let running = null; // AbortController of the request under way
const comparing = new Set(); // parents whose children are shown side by side

function element(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

function button(text, label, act) {
  const made = element("button", "", text);
  made.type = "button";
  made.title = label;
  made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}

export function draw() {
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
  list.replaceChildren(...conversation.path().map(drawTurn));
  if (atEnd) list.scrollTop = list.scrollHeight;
}

function drawTurn(turn) {
  const item = element("li", `turn ${turn.role} ${turn.state}`);
  item.turn = turn;
  if (turn.thought) item.append(element("div", "thought", turn.thought));
  const text = element("div", "text");
  fillText(text, turn);
  if (comparing.has(turn.parent) && turn.siblings.length > 1) {
    const columns = element("div", "compare");
    columns.append(...turn.siblings.map((sibling) => element("div", "", sibling.text)));
    item.append(columns);
  } else {
    item.append(text);
  }
  item.append(tools(turn));
  return item;
}

function fillText(box, turn) {
  if (!turn.tokens.length || turn.state === "failed") {
    box.textContent = turn.text || turn.note;
    return;
  }
  box.replaceChildren(...turn.tokens.map(tokenSpan));
}

function tokenSpan(entry) {
  const span = element("span", "token", entry.text);
  if (Math.exp(entry.logprob) < 0.5) span.classList.add("unsure");
  span.entry = entry;
  return span;
}

function tools(turn) {
  const bar = element("div", "tools");
  const { siblings } = turn;
  if (siblings.length > 1) {
    const at = siblings.indexOf(turn);
    const step = (by) => { conversation.go(siblings[(at + by + siblings.length) % siblings.length]); draw(); };
    bar.append(button("‹", "previous branch", () => step(-1)), `${at + 1}/${siblings.length}`, button("›", "next branch", () => step(1)));
    bar.append(button(comparing.has(turn.parent) ? "One" : "Compare", "compare branches side by side", () => {
      if (!comparing.delete(turn.parent)) comparing.add(turn.parent);
      draw();
    }));
  }
  if (turn.state !== "busy") {
    const label = turn.role === "user" ? "Edit in a new branch" : "Answer again in a new branch";
    bar.append(button("Fork", label, () => fork(turn)));
  }
  if (turn.note && turn.state !== "failed") bar.append(element("span", "quiet", turn.note));
  return bar;
}

function fork(turn) {
  if (running) return;
  if (turn.role === "assistant") {
    answer(turn.parent);
    return;
  }
  conversation.tip = turn.parent;
  prompt.value = turn.text;
  prompt.focus();
  draw();
}

async function answer(parent) {
  conversation.tip = parent;
  const options = settings();
  if (!options) return;
  const { system, ...sampling } = options;
  const messages = conversation.messages(system);
  const turn = conversation.add("assistant", "", parent);
  turn.state = "busy";
  running = new AbortController();
  setBusy(true);
  draw();
  try {
    const body = { model: "sapwood", messages, stream: true, stream_options: { include_usage: true }, ...sampling };
    const started = performance.now();
    for await (const chunk of events("v1/chat/completions", body, running.signal)) take(turn, chunk, started);
    turn.state = "done";
  } catch (error) {
    turn.state = error.name === "AbortError" ? "stopped" : "failed";
    turn.note = error.name === "AbortError" ? "stopped" : error.message;
  }
  running = null;
  setBusy(false);
  draw();
  prompt.focus();
}

function take(turn, chunk, started) {
  if (chunk.usage) {
    const { completion_tokens: made, prompt_tokens: read, prompt_tokens_details: { cached_tokens: cached } } = chunk.usage;
    const seconds = (performance.now() - started) / 1000;
    turn.note = `${made} tokens, ${(made / seconds).toFixed(0)}/s; ${cached} of ${read} prompt tokens from the tree`;
  }
  const [choice] = chunk.choices;
  if (!choice) return;
  const box = list.lastElementChild?.querySelector(".text");
  const text = choice.delta.content ?? "";
  turn.thought += choice.delta.reasoning_content ?? "";
  turn.text += text;
  const entries = choice.logprobs?.content ?? [];
  if (text && entries.length) {
    // Several tokens come at once where a grammar forced them; a character may take several tokens, too.
    const whole = entries.map((entry) => entry.token).join("") === text;
    const fresh = whole ? entries.map((entry) => ({ ...entry, text: entry.token })) : [{ ...entries.at(-1), text }];
    turn.tokens.push(...fresh);
    box?.append(...fresh.map(tokenSpan));
  } else if (text && box) {
    box.append(text);
  }
  if (choice.finish_reason === "length") turn.note = "cut off: raise max tokens";
  follow();
}

let following = false;

// Keep the end in view; once a frame, because it makes the browser lay the page out.
function follow() {
  if (following) return;
  following = true;
  requestAnimationFrame(() => {
    following = false;
    list.scrollTop = list.scrollHeight;
  });
}

function setBusy(busy) {
  send.disabled = busy;
  stop.hidden = !busy;
}

export function submit() {
  const text = prompt.value.trim();
  if (!text || running || !settings()) return;
  prompt.value = "";
  answer(conversation.add("user", text));
}

export function abort() {
  running?.abort();
}

export function clear() {
  abort();
  conversation = new Conversation();
  comparing.clear();
  draw();
  prompt.focus();
}

list.addEventListener("mouseover", (event) => {
  const { entry } = event.target;
  if (!entry) {
    hideTip();
    return;
  }
  const lines = [entry, ...entry.top_logprobs.filter((other) => other.token !== entry.token)].map(
    (one) => `${(100 * Math.exp(one.logprob)).toFixed(1).padStart(5)} %  ${JSON.stringify(one.token)}`,
  );
  showTip(lines.join("\n"), event.target.getBoundingClientRect());
});
list.addEventListener("mouseleave", hideTip);

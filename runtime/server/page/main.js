// Wires the page together.

import { ApiError, events, get, setKey } from "./api.js";
import * as chat from "./chat.js";
import { Chart } from "./charts.js";
import { TreeView } from "./tree.js";

const byId = (id) => document.getElementById(id);
const banner = byId("banner");
const status = byId("status");

const speed = new Chart("speed", ["tokens"]);
const hit = new Chart("hit", ["hit"]);
const queue = new Chart("queue", ["running", "waiting"]);
const kv = new Chart("kv", ["used"]);
const tree = new TreeView(byId("tree"), byId("v-tree"));

function say(state, text, problem = "") {
  status.dataset.state = state;
  status.textContent = text;
  banner.hidden = !problem;
  banner.textContent = problem;
}

let before = null; // the last totals, for rates

function show(seen) {
  const { stats } = seen;
  const now = performance.now() / 1000;
  const rate = before ? Math.max(stats.num_output - before.made, 0) / (now - before.time) : 0;
  before = { time: now, made: stats.num_output };
  speed.push([rate], `${rate.toFixed(0)} tok/s`, 10);
  hit.push([stats.hit_rate], `${(100 * stats.hit_rate).toFixed(0)} %`, 1);
  queue.push([stats.num_running, stats.num_waiting], `${stats.num_running}, ${stats.num_waiting}`, 2);
  kv.push([stats.token_usage], `${(100 * stats.token_usage).toFixed(0)} %`, 1);
  if (seen.tree) tree.update(seen.tree);
}

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

async function watch() {
  for (;;) {
    try {
      const [card] = (await get("v1/models")).data;
      byId("model").textContent = `${card.id}, context ${card.max_model_len.toLocaleString()}`;
      for await (const seen of events("watch")) {
        if (seen.error) {
          say("down", "backend down", seen.error);
        } else {
          say("up", "ready");
          show(seen);
        }
      }
    } catch (error) {
      const text = error instanceof ApiError ? error.message : "The server can't be reached; trying again.";
      say("down", error.status === 401 ? "key needed" : "offline", text);
    }
    await pause(1000);
  }
}

byId("composer").addEventListener("submit", (event) => { event.preventDefault(); chat.submit(); });
byId("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); chat.submit(); }
});
byId("stop").addEventListener("click", chat.abort);
byId("clear").addEventListener("click", chat.clear);
byId("key-form").addEventListener("submit", (event) => { event.preventDefault(); setKey(byId("key").value); });
byId("key").addEventListener("change", (event) => setKey(event.target.value));
addEventListener("keydown", (event) => {
  if (event.key === "Escape") chat.abort();
  if (event.key === "/" && !/INPUT|TEXTAREA/.test(document.activeElement.tagName)) { event.preventDefault(); byId("prompt").focus(); }
});
document.body.dataset.panel = "chat";
for (const tab of document.querySelectorAll("nav button")) {
  tab.addEventListener("click", () => {
    document.body.dataset.panel = tab.dataset.panel;
    for (const other of document.querySelectorAll("nav button")) other.setAttribute("aria-pressed", String(other === tab));
  });
}
watch();

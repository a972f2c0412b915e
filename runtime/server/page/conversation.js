// A conversation as a tree of turns. Forking a turn makes a sibling; the path to the tip is what is shown and sent.

export class Turn {
  constructor(role, text, parent) {
    this.role = role;
    this.text = text;
    this.thought = "";
    this.tokens = []; // {token, logprob, top_logprobs} of an answer
    this.parent = parent;
    this.children = [];
    this.state = "done"; // busy, done, stopped, failed
    this.note = "";
    parent?.children.push(this);
  }

  get siblings() {
    return this.parent?.children ?? [this];
  }
}

export class Conversation {
  constructor() {
    this.root = new Turn("root", "", null);
    this.tip = this.root;
  }

  // From the first turn to the tip.
  path() {
    const turns = [];
    for (let turn = this.tip; turn !== this.root; turn = turn.parent) turns.unshift(turn);
    return turns;
  }

  // Append a turn after `parent` and go there.
  add(role, text, parent = this.tip) {
    this.tip = new Turn(role, text, parent);
    return this.tip;
  }

  // Go to a sibling, and on to the newest turn below it.
  go(turn) {
    while (turn.children.length) turn = turn.children.at(-1);
    this.tip = turn;
  }

  messages(system) {
    const said = this.path().filter((turn) => turn.state !== "failed" && turn.state !== "busy");
    const messages = said.map((turn) => ({ role: turn.role, content: turn.text }));
    return system ? [{ role: "system", content: system }, ...messages] : messages;
  }
}

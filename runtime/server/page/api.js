// Talks to the server: JSON, and events as they come. Knows nothing of the page.

let key = sessionStorage.getItem("key") ?? "";

export function setKey(value) {
  key = value;
  sessionStorage.setItem("key", value);
}

function headers() {
  return { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
}

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function checked(response) {
  if (response.ok) return response;
  const text = await response.text();
  let message = text || response.statusText;
  try {
    const error = JSON.parse(text).error;
    message = error.message ?? error;
  } catch { /* not JSON: say what was sent */ }
  throw new ApiError(response.status, message);
}

export async function get(path) {
  return (await checked(await fetch(path, { headers: headers() }))).json();
}

// The parsed `data:` of every event. `body`: POST it; without, GET.
export async function* events(path, body, signal) {
  const options = body ? { method: "POST", body: JSON.stringify(body) } : {};
  const response = await checked(await fetch(path, { ...options, headers: headers(), signal }));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const blocks = held.split("\n\n");
    held = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim()).join("\n");
      if (data === "[DONE]") return;
      if (!data) continue;
      const parsed = JSON.parse(data);
      if (parsed.error?.message) throw new ApiError(200, parsed.error.message);
      yield parsed;
    }
  }
}

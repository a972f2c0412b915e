// The settings panel as request fields.

const field = (id) => document.getElementById(id);
const problem = field("schema-error");

function number(id) {
  const value = field(id).value;
  return value === "" ? undefined : Number(value);
}

// Fields for a chat request and `system`; null if the schema is not JSON (and says so).
export function settings() {
  const options = {
    system: field("system").value.trim(),
    temperature: number("temperature"),
    top_p: number("top_p"),
    top_k: number("top_k"),
    max_tokens: number("max_tokens"),
    seed: number("seed"),
  };
  if (field("probabilities").checked) Object.assign(options, { logprobs: true, top_logprobs: 5 });
  problem.textContent = "";
  if (field("constrain").checked) {
    try {
      options.response_format = { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(field("schema").value) } };
    } catch (error) {
      problem.textContent = `The schema is not JSON: ${error.message}`;
      field("schema").focus();
      return null;
    }
  }
  return options;
}

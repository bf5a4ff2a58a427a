// What may be asked of a job: pause, resume, cancel, and a fixed number of GPUs.

import { html, useState } from "./vendor/preact-htm.js";
import { post } from "./api.js";
import { Problem } from "./parts.js";
import { count } from "./text.js";

const ENDED = new Set(["completed", "failed", "cancelled", "rejected"]);

export function Actions({ job, who, again }) {
  const [asked, setAsked] = useState("");
  const [state, setState] = useState({ busy: false, error: null, done: "" });
  if (who.past || who.role === "viewer" || ENDED.has(job.state)) return null;
  const ask = async (action, body, done) => {
    setAsked("");
    setState({ busy: true, error: null, done: "" });
    try {
      await post(`/v1/jobs/${encodeURIComponent(job.id)}/${action}`, body);
      setState({ busy: false, error: null, done });
      again();
    } catch (error) {
      setState({ busy: false, error, done: "" });
    }
  };
  const paused = job.state === "halted";
  const sizes = job.optional_gpus;
  return html`<div class="actions" role="group" aria-label="Actions">
    ${paused
      ? html`<button type="button" disabled=${state.busy} onClick=${() => ask("resume", {}, "It is queued again.")}>Resume</button>`
      : html`<button type="button" disabled=${state.busy} onClick=${() => ask("pause", {}, "It saves and releases its GPUs.")}>Pause</button>`}
    ${asked === "cancel"
      ? html`<span class="sure">Cancel this job? <button type="button" class="danger" onClick=${() => ask("cancel", {}, "It is cancelled.")}>Yes, cancel it</button>
          <button type="button" onClick=${() => setAsked("")}>Keep it</button></span>`
      : html`<button type="button" class="danger" disabled=${state.busy} onClick=${() => setAsked("cancel")}>Cancel</button>`}
    ${sizes.length > 1 && html`<label>GPUs <select disabled=${state.busy} value=${job.pinned ?? ""}
      onChange=${(event) => ask("pin", { size: event.target.value ? Number(event.target.value) : null }, event.target.value ? `It goes to ${count(Number(event.target.value), "GPU")}, and stays there.` : "It may use all of its sizes.")}>
      <option value="" selected=${!job.pinned}>any of ${sizes.join(", ")}</option>
      ${sizes.map((size) => html`<option value=${size} selected=${job.pinned === size}>fixed: ${size}</option>`)}</select></label>`}
    <span role="status">${state.done}</span><${Problem} error=${state.error} /></div>`;
}

// All jobs, page by page, with a search by name.

import { html, useState } from "./vendor/preact-htm.js";
import { get } from "./api.js";
import { anyEntry, useData } from "./live.js";
import { JobLink, Problem, State, Table } from "./parts.js";
import { clock, count, fromNow } from "./text.js";

const LIMIT = 50;
const STATES = [
  ["", "all states"], ["submitted,initialized", "queued"], ["running,adjusting", "running"], ["halted", "paused"],
  ["completed", "completed"], ["failed", "failed"], ["cancelled", "cancelled"], ["rejected", "rejected"],
];

const COLUMNS = [
  { head: "Job", cell: (job) => html`<${JobLink} ...${job} />`, plain: true },
  { head: "User", cell: (job) => html`<bdi>${job.user}</bdi>`, narrow: false },
  { head: "State", cell: (job) => html`<${State} value=${job.state} stage=${job.stage} />` },
  { head: "GPUs", cell: (job) => job.size || "–", number: true },
  { head: "Submitted", cell: (job) => clock(job.submitted_at_s), narrow: false },
  { head: "Ends", cell: (job) => (job.finished_at_s !== null ? clock(job.finished_at_s) : fromNow(job.predicted_end_at_s)) },
  { head: "Why", cell: (job) => job.reason || "–", text: true, plain: true, narrow: false },
];

export function Jobs() {
  const [asked, setAsked] = useState({ name: "", state: "", pages: [null] });
  const after = asked.pages.at(-1);
  const load = (signal) => get("/v1/jobs", { limit: LIMIT, after, state: asked.state, name: pattern(asked.name) }, signal);
  const { data, before, error } = useData(load, [asked.name, asked.state, after], { follow: anyEntry });
  const page = data || before;
  const first = (asked.pages.length - 1) * LIMIT;
  return html`<h1 tabindex="-1">Jobs</h1><${Problem} error=${error} />
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>Name or id <input id="search" type="search" value=${asked.name} placeholder="resnet*" autocomplete="off"
        onInput=${(event) => setAsked({ ...asked, name: event.target.value, pages: [null] })} /></label>
      <label>State <select onChange=${(event) => setAsked({ ...asked, state: event.target.value, pages: [null] })}>
        ${STATES.map(([value, text]) => html`<option value=${value} selected=${value === asked.state}>${text}</option>`)}</select></label>
    </form>
    ${page ? html`<${Table} label="Jobs" columns=${COLUMNS} rows=${page.jobs} keyOf=${(job) => job.id} empty="No such job." />
      <p class="pages"><button type="button" disabled=${asked.pages.length < 2} onClick=${() => setAsked({ ...asked, pages: asked.pages.slice(0, -1) })}>Back</button>
        <span role="status">${page.jobs.length ? `${first + 1} to ${first + page.jobs.length} of ` : ""}${count(page.total, "job")}</span>
        <button type="button" disabled=${!page.next_after} onClick=${() => setAsked({ ...asked, pages: [...asked.pages, page.next_after] })}>Next</button></p>`
      : html`<p aria-busy="true">Loading…</p>`}`;
}

/** A name that is typed in finds each name that has it in it. */
function pattern(name) {
  const text = name.trim().replace(/[^A-Za-z0-9._*?-]/g, "");
  return !text ? "" : /[*?]/.test(text) ? text : `*${text}*`;
}

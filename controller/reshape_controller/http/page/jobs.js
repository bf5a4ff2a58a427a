// All jobs, page by page: those that have not ended first, each newest first; a search by name.

import { html, useState } from "./vendor/preact-htm.js";
import { get } from "./api.js";
import { FirstJob } from "./first_job.js";
import { anyEntry, useData } from "./live.js";
import { Heading, JobLink, Problem, State, Table, Time } from "./parts.js";
import { count, fromNow } from "./text.js";

const LIMIT = 50;
const ACTIVE = "submitted,initialized,running,adjusting,halted";
const ENDED = "completed,failed,cancelled,rejected";
const STATES = [
  ["", "all states"], ["submitted,initialized", "queued"], ["running,adjusting", "running"], ["halted", "paused"],
  ["completed", "completed"], ["failed", "failed"], ["cancelled", "cancelled"], ["rejected", "rejected"],
];
const FIRST = { group: 0, after: null };

const COLUMNS = [
  { head: "Job", cell: (job) => html`<${JobLink} ...${job} />`, plain: true },
  { head: "User", cell: (job) => html`<bdi>${job.user}</bdi>`, narrow: false },
  { head: "State", cell: (job) => html`<${State} value=${job.state} stage=${job.stage} />` },
  { head: "GPUs", cell: (job) => job.size || "–", number: true },
  { head: "Submitted", cell: (job) => html`<${Time} at=${job.submitted_at_s} />`, narrow: false },
  { head: "End", cell: (job) => (job.finished_at_s !== null ? html`<${Time} at=${job.finished_at_s} />` : fromNow(job.predicted_end_at_s)) },
  { head: "Why", cell: (job) => job.reason || "–", text: true, plain: true, narrow: false },
];

/**
 * A page of the jobs that are asked for, from a place on: those that have not ended, then those that
 * have, each newest first.
 */
async function load(asked, place, signal) {
  const groups = asked.state ? [asked.state] : [ACTIVE, ENDED];
  const name = pattern(asked.name);
  const found = { jobs: [], total: 0, next: null };
  for (const [group, state] of groups.entries()) {
    const wanted = group < place.group ? 0 : LIMIT - found.jobs.length;
    const after = group === place.group ? place.after : null;
    const page = await get("/v1/jobs", { limit: wanted || 1, after, state, name, order: "newest" }, signal);
    found.total += page.total;
    if (!wanted) {
      if (group > place.group && page.total && !found.next) found.next = { group, after: null };
      continue;
    }
    found.jobs.push(...page.jobs);
    if (page.next_after) found.next = { group, after: page.next_after };
  }
  return found;
}

export function Jobs({ who }) {
  const [asked, setAsked] = useState({ name: "", state: "", places: [FIRST] });
  const place = asked.places.at(-1);
  const inputs = [asked.name, asked.state, place.group, place.after];
  const { data, before, error } = useData((signal) => load(asked, place, signal), inputs, { follow: anyEntry });
  const page = data || before;
  const first = (asked.places.length - 1) * LIMIT;
  const none = page && !page.total && !asked.name && !asked.state;
  return html`<${Heading} text="Jobs" /><${Problem} error=${error} />
    ${none ? html`<${FirstJob} who=${who} />` : html`<form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>Name or id <input id="search" type="search" value=${asked.name} placeholder="resnet*" autocomplete="off"
        onInput=${(event) => setAsked({ ...asked, name: event.target.value, places: [FIRST] })} /></label>
      <label>State <select onChange=${(event) => setAsked({ ...asked, state: event.target.value, places: [FIRST] })}>
        ${STATES.map(([value, text]) => html`<option value=${value} selected=${value === asked.state}>${text}</option>`)}</select></label>
    </form>
    ${page ? html`<${Table} label="Jobs" columns=${COLUMNS} rows=${page.jobs} keyOf=${(job) => job.id} empty="No such job." />
      <p class="pages"><button type="button" disabled=${asked.places.length < 2} onClick=${() => setAsked({ ...asked, places: asked.places.slice(0, -1) })}>Back</button>
        <span role="status">${page.jobs.length ? `${first + 1} to ${first + page.jobs.length} of ` : ""}${count(page.total, "job")}</span>
        <button type="button" disabled=${!page.next} onClick=${() => setAsked({ ...asked, places: [...asked.places, page.next] })}>Next</button></p>`
      : html`<p aria-busy="true">Loading…</p>`}`}`;
}

/** A name that is typed in finds each name that has it in it. */
function pattern(name) {
  const text = name.trim().replace(/[^A-Za-z0-9._*?-]/g, "");
  return !text ? "" : /[*?]/.test(text) ? text : `*${text}*`;
}

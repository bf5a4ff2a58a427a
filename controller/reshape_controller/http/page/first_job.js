// What a person sees before there is a job: how to submit the first one.

import { html } from "./vendor/preact-htm.js";
import { url } from "./api.js";

const LOOPBACK = /^(127\..*|localhost|\[::1\])$/;
const RECORD = `name: my-job
command: python train.py {epochs}
optional_gpus: [1, 2, 4]
epochs: 12`;

/** A text that one click selects. */
function Copied({ label, text }) {
  return html`<pre class="copied" tabindex="0" role="region" aria-label=${label}>${text}</pre>`;
}

export function FirstJob({ who }) {
  if (who.past || who.role === "viewer") return html`<p class="empty">No job was submitted yet.</p>`;
  const daemon = new URL(url("/"), location.href).href.replace(/\/$/, "");
  const submit = "reshape submit my-job.yaml";
  const commands = LOOPBACK.test(location.hostname) ? `RESHAPE_URL=${daemon} ${submit}` : `reshape login ${daemon}\n${submit}`;
  return html`<section class="first"><h2>Submit the first job</h2>
    <p>A job is a script and a record beside it, <code>my-job.yaml</code>:</p>
    <${Copied} label="A record" text=${RECORD} />
    <p>${LOOPBACK.test(location.hostname) ? "In a terminal of the daemon's machine:" : "In a terminal; the first line asks for a token of yours:"}</p>
    <${Copied} label="The command" text=${commands} />
    <p class="note">The job shows here at once.</p></section>`;
}

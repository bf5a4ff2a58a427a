// Hosts and their GPUs; an operator drains them, and clears quarantined GPUs.

import { html, useState } from "./vendor/preact-htm.js";
import { get, post } from "./api.js";
import { anyEntry, useData } from "./live.js";
import { Heading, JobLink, Problem, State, Table } from "./parts.js";

const load = (signal) => Promise.all([get("/v1/hosts", {}, signal), get("/v1/gpus", {}, signal)]);

export function Hosts({ who }) {
  const { data, error, again } = useData(load, [], { follow: anyEntry });
  const [failure, setFailure] = useState(null);
  const operates = who.role === "operator" && !who.past;
  const ask = (path) => post(path).then(() => { setFailure(null); again(); }, setFailure);
  if (!data) return html`<${Heading} text="Hosts" /><${Problem} error=${error} />${!error && html`<p aria-busy="true">Loading…</p>`}`;
  const [{ hosts }, { gpus }] = data;
  return html`<${Heading} text="Hosts" /><${Problem} error=${error || failure} />
    ${hosts.length ? hosts.map((host) => html`<${Host} key=${host.id} host=${host} gpus=${gpus.filter((gpu) => gpu.host === host.id)} ask=${operates ? ask : null} />`)
      : html`<p class="empty">No host has come yet.</p>`}`;
}

function Host({ host, gpus, ask }) {
  const used = gpus.filter((gpu) => gpu.state === "in use").length;
  const action = host.drained ? "undrain" : "drain";
  const columns = [
    { head: "GPU", cell: (gpu) => gpu.index, number: true },
    { head: "State", cell: (gpu) => html`<${State} value=${gpu.state} />` },
    { head: "Job", cell: (gpu) => (gpu.owner ? html`<${JobLink} id=${gpu.owner} name=${gpu.owner_name ?? gpu.owner} />` : "–") },
    { head: "Next", cell: (gpu) => (gpu.promised_to ? html`<${JobLink} id=${gpu.promised_to} name=${gpu.promised_to_name ?? gpu.promised_to} />` : "–"), narrow: false },
    { head: "Id", cell: (gpu) => html`<code>${gpu.id}</code>`, narrow: false },
    { head: "Why", cell: (gpu) => html`${gpu.reason || ""} ${ask && gpu.state === "quarantined" && html`<button type="button" onClick=${() => ask(`/v1/gpus/${encodeURIComponent(gpu.id)}/clear`)}>Clear</button>`}`, text: true, plain: true },
  ];
  return html`<section><h2><bdi>${host.id}</bdi> <small>${gpus.length} × ${host.gpu_type}, ${used} in use${host.drained ? ", drained" : ""}${host.present ? "" : ", silent"}</small></h2>
    ${ask && html`<p><button type="button" onClick=${() => ask(`/v1/hosts/${encodeURIComponent(host.id)}/${action}`)}>${host.drained ? "Use it again" : "Drain"}</button></p>`}
    <${Table} label=${`GPUs of ${host.id}`} columns=${columns} rows=${gpus} keyOf=${(gpu) => gpu.id} empty="It has no GPU." /></section>`;
}

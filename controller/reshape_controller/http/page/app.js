// The page: session, navigation between its views, theme, and keys.

import { html, render, useEffect, useState } from "./vendor/preact-htm.js";
import { logIn, logOut, onSessionEnd, session, useToken } from "./api.js";
import { Gantt } from "./gantt.js";
import { Hosts } from "./hosts.js";
import { Job } from "./job.js";
import { Jobs } from "./jobs.js";
import { live, useFeed } from "./live.js";
import { Login } from "./login.js";
import { Overview } from "./overview.js";
import { Problem } from "./parts.js";
import { Usage } from "./usage.js";

const VIEWS = [["", "Overview"], ["gpus", "GPUs"], ["jobs", "Jobs"], ["hosts", "Hosts"], ["usage", "Usage"]];
const THEMES = ["system", "light", "dark"];
const STATUS = { live: "live", connecting: "connecting", lost: "connection lost; trying again", off: "" };

function place() {
  const [view = "", key = ""] = location.hash.replace(/^#\/?/, "").split("/");
  try {
    return { view, key: decodeURIComponent(key) };
  } catch {
    return { view: "", key: "" };
  }
}

function View({ view, id, who }) {
  if (view === "gpus") return html`<${Gantt} key=${id} at=${Number(id) || null} past=${who.past} />`;
  if (view === "jobs") return html`<${Jobs} who=${who} />`;
  if (view === "job") return html`<${Job} key=${id} id=${id} who=${who} />`;
  if (view === "hosts") return html`<${Hosts} who=${who} />`;
  if (view === "usage") return html`<${Usage} past=${who.past} />`;
  return html`<${Overview} who=${who} />`;
}

function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme || "system");
  const next = () => {
    const chosen = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    localStorage.setItem("theme", chosen);
    applyTheme(chosen);
    setTheme(chosen);
    window.dispatchEvent(new Event("theme"));
  };
  return html`<button type="button" onClick=${next}>Theme: ${theme}</button>`;
}

function applyTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const number = Number(event.key) - 1;
  if (VIEWS[number]) location.hash = `#/${VIEWS[number][0]}`;
  if (event.key === "/") {
    event.preventDefault();
    location.hash = "#/jobs";
    setTimeout(() => document.getElementById("search")?.focus(), 50);
  }
}

function Page({ who, end }) {
  const [at, setAt] = useState(place);
  const [failure, setFailure] = useState(null);
  const { status } = useFeed();
  useEffect(() => {
    live.start({ follows: !who.past });
    const go = () => {
      setAt(place());
      setTimeout(() => document.querySelector("main h1")?.focus(), 0);
    };
    window.addEventListener("hashchange", go);
    document.addEventListener("keydown", keys);
    setAt(place()); // of a hash that changed before this listened
    return () => {
      live.stop();
      window.removeEventListener("hashchange", go);
      document.removeEventListener("keydown", keys);
    };
  }, []);
  const here = at.view === "job" ? "jobs" : at.view;
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector("main h1")?.focus(); }}>Skip to the content</a>
    <header><a class="brand" href="#/"><img src="icon.svg" alt="" width="22" height="22" /> Reshape</a>
      <nav aria-label="Views">${VIEWS.map(([view, text], n) => html`<a href=${`#/${view}`} title=${`key ${n + 1}`}
        aria-current=${here === view ? "page" : undefined}>${text}</a>`)}</nav>
      <div class="session"><span class=${`link link-${status}`} role="status">${who.past ? "a past run, read-only" : html`<span aria-hidden="true">${status === "live" ? "●" : "○"}</span> ${STATUS[status]}`}</span>
        <${Theme} /> ${!who.past && html`<span class="who"><bdi>${who.user}</bdi>${who.role === who.user ? "" : ` (${who.role})`}</span> <button type="button" onClick=${() => end().catch(setFailure)}>Log out</button>`}</div></header>
    <main id="main"><${Problem} error=${failure} /><${View} view=${at.view} id=${at.key} who=${who} /></main>
    <footer>Keys: 1 to 5 for the views, / for a search. Times are those of this browser's zone.</footer>`;
}

function App() {
  const [who, setWho] = useState(undefined);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    onSessionEnd(() => setWho(null));
    const given = new URLSearchParams(location.hash.replace(/^#\/?\??/, ""));
    const link = given.get("link");
    if (given.has("token")) useToken(given.get("token"));
    if (link || given.has("token")) history.replaceState(null, "", location.pathname);
    const begin = (ask) => ask().then(
      (found) => { setProblem(""); setWho(found); },
      (error) => { setProblem(error.message); setTimeout(() => begin(session), 3000); },
    );
    begin(() => (link ? logIn({ link }).catch(session) : session()));
  }, []);
  if (problem) return html`<main><h1>Reshape</h1><p role="alert" class="problem">${problem}</p></main>`;
  if (who === undefined) return html`<main aria-busy="true"></main>`;
  if (who === null) return html`<${Login} begin=${setWho} />`;
  return html`<${Page} who=${who} end=${() => logOut().then(() => setWho(null))} />`;
}

applyTheme(localStorage.getItem("theme"));
render(html`<${App} />`, document.getElementById("app"));

// The page: session, navigation between its views, and theme.

import { html, render, useEffect, useState } from "./vendor/preact-htm.js";
import { logIn, logOut, onSessionEnd, session } from "./api.js";
import { Login } from "./login.js";

function App() {
  const [who, setWho] = useState(undefined);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    onSessionEnd(() => setWho(null));
    const link = new URLSearchParams(location.hash.replace(/^#\/?/, "")).get("link");
    if (link) history.replaceState(null, "", location.pathname);
    const begin = link ? logIn({ link }).catch(() => session()) : session();
    begin.then(setWho, (error) => setProblem(error.message));
  }, []);
  if (problem) return html`<main><p role="alert">${problem}</p></main>`;
  if (who === undefined) return html`<main aria-busy="true"></main>`;
  if (who === null) return html`<${Login} begin=${setWho} />`;
  return html`<main><h1>Reshape</h1><p>${who.user} (${who.role})</p>
    <button onClick=${() => logOut().finally(() => setWho(null))}>Log out</button></main>`;
}

render(html`<${App} />`, document.getElementById("app"));

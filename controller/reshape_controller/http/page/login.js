// The form that begins a session with a token.

import { html, useState } from "./vendor/preact-htm.js";
import { logIn } from "./api.js";
import { Heading } from "./parts.js";

export function Login({ begin }) {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    try {
      begin(await logIn({ token: token.trim() }));
    } catch (error) {
      setProblem(error.status === 401 ? "This token is wrong, expired or revoked." : error.message);
    }
  };
  return html`<main class="login">
    <${Heading} text="Log in">Reshape<//>
    <p>Open the page without a token by <code>reshape page</code> on the daemon's machine, or give
      a token of <code>reshape token create</code>.</p>
    <form onSubmit=${submit}>
      <label for="token">Token</label>
      <input id="token" type="password" autocomplete="off" required value=${token}
        onInput=${(event) => setToken(event.target.value)} />
      <button type="submit">Log in</button>
      <p role="alert" class="problem">${problem}</p>
    </form>
  </main>`;
}

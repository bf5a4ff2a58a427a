// Requests to the daemon. Does: one place for the session's cookie, its CSRF value and errors.

// The folder above the page, so that it also works behind a proxy's prefix.
const ROOT = new URL("../", import.meta.url).pathname;

let csrf = "";
let bearer = sessionStorage.getItem("token") || "";
let skewS = 0;
let pastS = null;
let ended = () => {};

export class Refused extends Error {
  constructor(status, body) {
    super(body.message || `the daemon answered ${status}`);
    this.status = status;
    this.hint = body.hint || "";
  }
}

export class Unreachable extends Error {
  constructor() {
    super("the daemon does not answer");
    this.hint = "the page tries again; is it running? reshape status";
  }
}

/** Call `then` when a request was refused because there is no session any more. */
export function onSessionEnd(then) {
  ended = then;
}

/** Use a token of `reshape show`, which has no cookies; this tab remembers it. Empty: use none. */
export function useToken(token) {
  bearer = token;
  sessionStorage.setItem("token", token);
}

/** The daemon's time, in Unix seconds; that of a past run stands still at its end. */
export function nowS() {
  return pastS ?? Date.now() / 1000 + skewS;
}

export function url(path, query = {}) {
  const words = new URLSearchParams(
    Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  ).toString();
  return ROOT + path.replace(/^\//, "") + (words ? `?${words}` : "");
}

async function ask(method, path, { query, body, signal } = {}) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (bearer) headers.Authorization = `Bearer ${bearer}`;
  if (method !== "GET" && csrf) headers["X-Reshape-CSRF"] = csrf;
  let answer;
  try {
    answer = await fetch(url(path, query), {
      method,
      headers,
      signal,
      credentials: "same-origin",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable();
  }
  const daemons = Number(answer.headers.get("Reshape-Now"));
  if (daemons) skewS = daemons - Date.now() / 1000;
  if (answer.ok) return answer;
  const failure = await answer.json().catch(() => ({}));
  if (answer.status === 401 && path !== "/v1/session") ended();
  throw new Refused(answer.status, failure);
}

export async function get(path, query, signal) {
  return (await ask("GET", path, { query, signal })).json();
}

export async function getText(path, query, signal) {
  return (await ask("GET", path, { query, signal })).text();
}

export async function post(path, body = {}) {
  return (await ask("POST", path, { body })).json();
}

function begun(session) {
  csrf = session.csrf || "";
  pastS = session.past ? nowS() : null;
  return session;
}

/**
 * The present session; null if a login is needed. Of a daemon it is that of the cookie: a token in
 * an address, or of a `reshape show` of before at the same port, does not say who asks.
 */
export async function session() {
  try {
    const found = await get("/v1/session");
    if (!bearer || found.past) return begun(found);
  } catch (error) {
    if (error.status !== 401) throw error;
    if (!bearer) return null;
  }
  useToken("");
  return session();
}

/** Begin a session with `{token}` or `{link}`. */
export async function logIn(words) {
  useToken("");
  return begun(await post("/v1/session", words));
}

/** End the session. Throws if it may go on, for the cookie is then still good. */
export async function logOut() {
  try {
    await ask("DELETE", "/v1/session");
  } catch (error) {
    if (error.status !== 401) throw error; // it was over already
  }
  csrf = "";
}

// Requests to the dashboard's server, and through it to the API server with the visitor's credentials.

/** ApiError is a failure that the server reported as a Status of Kubernetes. */
export class ApiError extends Error {
  constructor(code, reason, message) {
    super(message);
    this.code = code;
    this.reason = reason;
  }
}

const defaultTimeout = 30_000; // milliseconds

let csrfToken = '';

/** Sets the token that requests which change something carry. */
export function setToken(token) {
  csrfToken = token;
}

/** Goes to the sign-in page. The pages call it when the session has ended. */
function signInAgain() {
  location.assign('/signin?error=expired');
}

async function errorOf(response) {
  let status = {};
  try {
    status = await response.json();
  } catch {
    // Not a Status, such as the page of a proxy: the code is all that is known.
  }
  return new ApiError(response.status, status.reason ?? '', status.message ?? `${response.status} ` +
    response.statusText);
}

/**
 * Sends a request and returns the response. Throws an ApiError if it fails.
 * @param {string} path
 * @param {{method?: string, body?: any, type?: string, accept?: string, signal?: AbortSignal, timeout?: number}}
 *   options `timeout` in milliseconds ends the request, also while its body is read; 0: none, for streams
 */
export async function send(path, options = {}) {
  const {method = 'GET', body, type = 'application/json', accept = 'application/json', signal} = options;
  const timeout = options.timeout ?? defaultTimeout;
  const signals = [];
  if (signal) signals.push(signal);
  if (timeout > 0) signals.push(AbortSignal.timeout(timeout));
  const headers = {Accept: accept};
  if (method !== 'GET') headers['X-Dashboard-Token'] = csrfToken;
  if (body !== undefined) headers['Content-Type'] = type;
  let response;
  try {
    response = await fetch(path, {
      method, headers, credentials: 'same-origin', redirect: 'error', signal: AbortSignal.any(signals),
      body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
    });
  } catch (err) {
    if (signal?.aborted) throw err;
    if (err.name === 'TimeoutError') throw new ApiError(0, 'Timeout', 'The server did not answer in time.');
    throw new ApiError(0, 'Unreachable', 'The dashboard cannot be reached. Is it still running?');
  }
  if (response.status === 401) signInAgain();
  if (!response.ok) throw await errorOf(response);
  return response;
}

/** Sends a request and returns the decoded JSON. */
export async function json(path, options) {
  return (await send(path, options)).json();
}

/** Returns the JSON of an endpoint of the dashboard. */
export function get(path, params, signal) {
  const query = params ? `?${new URLSearchParams(params)}` : '';
  return json(path + query, {signal});
}

/**
 * Sends a patch to the API server.
 * @param {string} path
 * @param {any} patch
 * @param {'merge'|'strategic-merge'|'json'} form
 */
export function patch(path, body, form = 'merge') {
  return json(`${path}?fieldManager=clusterctl-dashboard`, {
    method: 'PATCH', body, type: form === 'json' ? 'application/json-patch+json' : `application/${form}-patch+json`,
  });
}

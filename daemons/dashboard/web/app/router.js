// Shows the page that the address names, without loading the document again.

/**
 * @typedef {{params: string[], query: URLSearchParams, signal: AbortSignal}} Context `signal` aborts when the visitor
 *   leaves the page
 * @typedef {{pattern: RegExp, show: (place: HTMLElement, context: Context) => void|Promise<void>}} Route
 */

export class Router {
  #routes;
  #place;
  #onError;
  #onShown;
  #current = null; // AbortController of the page
  #guard = null; // returns a question if leaving the page would lose something

  /**
   * @param {Route[]} routes the first one that matches is shown
   * @param {HTMLElement} place
   * @param {(place: HTMLElement, err: Error) => void} onError
   * @param {() => void} onShown is called after each change of the address
   */
  constructor(routes, place, onError, onShown) {
    this.#routes = routes;
    this.#place = place;
    this.#onError = onError;
    this.#onShown = onShown;
    addEventListener('popstate', () => this.show());
    document.addEventListener('click', (event) => this.#click(event));
    // Pages that the browser keeps for its back button would keep their connections.
    addEventListener('pagehide', () => this.#current?.abort());
    addEventListener('pageshow', (event) => { if (event.persisted) this.show(); });
  }

  /** Goes to an address of the dashboard. */
  go(address) {
    if (!this.mayLeave()) return;
    history.pushState(null, '', address);
    this.show();
    document.querySelector('h1')?.focus({preventScroll: true}); // so that screen readers read the new title
  }

  /** Changes the query of the address, and the page stays. Empty values are removed. */
  setQuery(change) {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(change)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    const text = query.toString();
    history.replaceState(null, '', location.pathname + (text ? `?${text}` : ''));
  }

  /** Sets a function that returns a question when leaving the page would lose something, and '' otherwise. */
  guard(question) {
    this.#guard = question;
  }

  /** Shows the page of the present address. */
  async show() {
    this.#current?.abort();
    this.#guard = null;
    const controller = new AbortController();
    this.#current = controller;
    this.#place.replaceChildren();
    this.#place.scrollTop = 0;
    this.#onShown();
    const query = new URLSearchParams(location.search);
    for (const route of this.#routes) {
      const match = route.pattern.exec(location.pathname);
      if (!match) continue;
      try {
        const params = match.slice(1).map((text) => decodeURIComponent(text ?? ''));
        await route.show(this.#place, {params, query, signal: controller.signal});
      } catch (err) {
        if (!controller.signal.aborted) this.#onError(this.#place, err);
      }
      return;
    }
    this.#onError(this.#place, new Error('There is no such page.'));
  }

  /** Asks the visitor if leaving would lose something. Reports whether to go on. */
  mayLeave() {
    const question = this.#guard?.();
    if (question && !confirm(question)) return false;
    this.#guard = null;
    return true;
  }

  #click(event) {
    const link = event.target.closest?.('a[href]');
    if (!link || event.defaultPrevented || event.button !== 0 || link.target || link.hasAttribute('download')) return;
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const address = new URL(link.href);
    if (address.hash || address.origin !== location.origin) return;
    if (address.pathname !== '/' && !address.pathname.startsWith('/p/')) return;
    event.preventDefault();
    this.go(address.pathname + address.search);
  }
}

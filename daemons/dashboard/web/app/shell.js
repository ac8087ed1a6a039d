// What surrounds every page: navigation, namespace, theme, the visitor, and the way to sign out.

import {button, h, setText} from './dom.js';
import {allowed} from './access.js';
import {json, send} from './api.js';
import {pages} from './navigation.js';
import {showHelp} from './keys.js';

class Shell {
  session = null;
  router = null;
  #title;
  #links = [];
  #namespace;
  #namespaceField;
  #navigation;
  #menu;

  /** Returns the frame of the pages, and the element that holds the page. */
  build(session) {
    this.session = session;
    this.#title = h('h1', {tabindex: '-1'});
    const main = h('main', {id: 'page', tabindex: '-1'});
    this.#links = pages.map(([address, title]) => h('a', {href: address}, title));
    this.#navigation = h('nav', {id: 'navigation', 'aria-label': 'Pages'}, this.#links);
    this.#menu = button('Menu', () => this.#toggleMenu(), {class: 'quiet menu', 'aria-expanded': 'false',
      'aria-controls': 'navigation'});
    const frame = h('div', {class: 'frame'},
      h('a', {class: 'skip', href: '#page'}, 'Skip to the content'),
      h('aside', null, h('div', {class: 'brand'}, this.#menu, h('a', {href: '/'}, session.cluster || 'clusterctl'),
        h('span', {class: 'muted version'}, session.version)), this.#navigation, this.#account()),
      h('div', {class: 'content'}, h('header', null, this.#title, this.#namespaceChoice()), main),
      h('div', {id: 'messages', role: 'status', 'aria-live': 'polite'}),
      h('div', {id: 'spoken', class: 'hidden', 'aria-live': 'polite'}));
    return {frame, main};
  }

  #account() {
    return h('div', {class: 'account'},
      h('div', {class: 'user', title: (this.session.groups ?? []).join(', ')}, this.session.user),
      h('div', {class: 'row'}, button('Theme', () => this.#switchTheme(), {class: 'quiet', id: 'theme'}),
        button('Help', showHelp, {class: 'quiet', 'aria-keyshortcuts': '?'}),
        button('Sign out', () => this.signOut(), {class: 'quiet', id: 'sign-out'})));
  }

  /** Ends the session. */
  async signOut() {
    try {
      await send('/signout', {method: 'POST'});
    } catch (err) {
      if (err.code && err.code !== 401) {
        document.getElementById('messages').append(h('div', {class: 'message bad'}, err.message));
        return;
      }
    }
    location.assign('/signin');
  }

  #switchTheme() {
    const root = document.documentElement;
    const system = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
    root.dataset.theme = (root.dataset.theme ?? system) === 'dark' ? 'light' : 'dark';
    try {
      localStorage.setItem('theme', root.dataset.theme);
    } catch {
      // Storage is disabled: the choice holds until the page is loaded again.
    }
  }

  #toggleMenu(isOpen = this.#menu.getAttribute('aria-expanded') !== 'true') {
    this.#menu.setAttribute('aria-expanded', String(isOpen));
    this.#navigation.parentElement.classList.toggle('open', isOpen);
  }

  #namespaceChoice() {
    const options = h('datalist', {id: 'namespaces'});
    this.#namespace = h('input', {id: 'namespace', list: 'namespaces', placeholder: 'All namespaces', type: 'search',
      autocomplete: 'off', spellcheck: 'false', on: {
        change: () => this.#chooseNamespace(),
        focus: () => this.#loadNamespaces(options),
      }});
    this.#namespaceField = h('div', {class: 'namespace', hidden: true}, h('label', {for: 'namespace'}, 'Namespace'),
      this.#namespace, options);
    return this.#namespaceField;
  }

  async #loadNamespaces(options) {
    if (!await allowed({verb: 'list', resource: 'namespaces'})) return;
    try {
      const list = await json('/k8s/api/v1/namespaces?limit=1000',
        {accept: 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1'});
      options.replaceChildren(...list.items.map((item) => h('option', {value: item.metadata.name})));
    } catch {
      options.replaceChildren(); // the name can still be typed
    }
  }

  #chooseNamespace() {
    this.setQuery({ns: this.#namespace.value.trim()});
    this.router.show();
  }

  /** Sets the title of the page. Pages of namespaced kinds have a choice of the namespace. */
  setTitle(title, {namespaced = false} = {}) {
    setText(this.#title, title);
    document.title = `${title} – ${this.session.cluster || 'clusterctl'}`;
    this.#namespaceField.hidden = !namespaced;
  }

  /** Marks the page in the navigation, and closes the menu of small screens. */
  shown() {
    const namespace = this.namespace();
    this.#namespace.value = namespace;
    this.#toggleMenu(false);
    this.#links.forEach((link, i) => {
      const [address] = pages[i];
      link.setAttribute('href', address === '/' ? address : this.withNamespace(address));
      if (location.pathname === address) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
    });
    this.#namespaceField.hidden = true;
  }

  /** Returns the namespace that the address names, or ''. */
  namespace() {
    return new URLSearchParams(location.search).get('ns') ?? '';
  }

  /** Returns an address with the present namespace. */
  withNamespace(address) {
    const namespace = this.namespace();
    if (!namespace) return address;
    return `${address}${address.includes('?') ? '&' : '?'}ns=${encodeURIComponent(namespace)}`;
  }

  go(address) {
    this.router.go(address);
  }

  setQuery(change) {
    this.router.setQuery(change);
  }
}

/** The shell of this document. */
export const shell = new Shell();

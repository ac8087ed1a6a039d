// The page of one object: what it is, its YAML, events, relatives, and for pods logs and a terminal.

import {fill, h, setText} from './dom.js';
import {actionsFor} from './actions.js';
import {allowed} from './access.js';
import {collectionPath, listURL, lookUp} from './kinds.js';
import {drawSummary} from './summary.js';
import {pluralKind} from './list.js';
import {shell} from './shell.js';
import {showEvents} from './events.js';
import {showLogs} from './logs.js';
import {showRelated} from './related.js';
import {showTerminal} from './terminal.js';
import {showWhy} from './why.js';
import {showYAML} from './editor.js';
import {watchObject} from './watch.js';

/**
 * @typedef {import('./kinds.js').Kind} Kind
 * @typedef {{kind: Kind, ref: import('./kinds.js').Ref, signal: AbortSignal, object: object|null,
 *   onObject: (listener: (object: object) => void) => void}} Page `onObject` calls the listener now and after changes
 */

const isPod = (page) => page.kind.group === '' && page.kind.resource === 'pods';
const podRights = (page, verb, subresource) => ({verb, resource: 'pods', subresource, namespace: page.ref.namespace,
  name: page.ref.name});

/** All tabs: name, title, whether the kind has it, the right that it needs, and what shows it. */
const tabs = [
  {name: 'summary', title: 'Summary', show: showSummary},
  {name: 'why', title: 'Why', applies: (page) => hasWhy(page.kind), show: showWhy},
  {name: 'logs', title: 'Logs', applies: isPod, right: (page) => podRights(page, 'get', 'log'), show: showLogs},
  {name: 'terminal', title: 'Terminal', applies: isPod, right: (page) => podRights(page, 'create', 'exec'),
    show: showTerminal},
  {name: 'events', title: 'Events', show: showEvents,
    right: (page) => ({verb: 'list', resource: 'events', namespace: page.ref.namespace})},
  {name: 'related', title: 'Related', show: showRelated},
  {name: 'yaml', title: 'YAML', show: showYAML},
];

/** Kinds that clusterctl why explains, as group/resource. */
const explained = new Set(['/pods', '/nodes', '/namespaces', '/services', '/persistentvolumeclaims',
  '/persistentvolumes', 'apps/deployments', 'apps/statefulsets', 'apps/daemonsets', 'apps/replicasets', 'batch/jobs',
  'batch/cronjobs', 'networking.k8s.io/ingresses', 'autoscaling/horizontalpodautoscalers',
  'policy/poddisruptionbudgets']);

function hasWhy(kind) {
  return explained.has(`${kind.group}/${kind.resource}`);
}

/** Shows the page of an object. */
export async function showObject(place, {params, query, signal}) {
  const [group, version, resource, namespace, name] = params;
  const kind = await lookUp(group === 'core' ? '' : group, resource, version);
  if (!kind) throw new Error(`The API does not serve ${resource}.`);
  const listeners = new Set();
  const page = {kind, signal, object: null, ref: {group: kind.group, version: kind.version, resource,
    namespace: namespace === '-' ? '' : namespace, name},
  onObject: (listener, stop) => {
    listeners.add(listener);
    stop?.addEventListener('abort', () => listeners.delete(listener));
    if (page.object) listener(page.object);
  }};
  shell.setTitle(name);
  const view = new View(place, page);
  const report = (object) => {
    if (!object) {
      view.note(page.object ? 'This object has been deleted.' : `${kind.kind} ${name} does not exist.`);
      view.hideActions();
      return;
    }
    page.object = object;
    view.note(object.metadata.deletionTimestamp ? 'This object is being deleted.' : '');
    for (const listener of listeners) listener(object);
  };
  const mayWatch = (await Promise.all(['list', 'watch'].map((verb) => kind.verbs.includes(verb) && allowed({verb, name,
    group: kind.group, resource, namespace: page.ref.namespace})))).every(Boolean);
  watchObject(collectionPath(kind, page.ref.namespace), name, report, (err) => view.note(err.message), signal,
    mayWatch);
  await view.choose(query.get('tab') ?? 'summary');
}

/** View holds the elements of the page that stay when the tab changes. */
class View {
  #page;
  #note = h('div', {class: 'note', role: 'status', hidden: true});
  #actions = h('div', {class: 'actions', role: 'toolbar', 'aria-label': 'Actions'});
  #tabs = h('div', {class: 'tabs', role: 'tablist', 'aria-label': 'Views'});
  #panel = h('div', {class: 'panel', role: 'tabpanel', tabindex: '0'});
  #shown = []; // tabs that the visitor may use
  #controller = null; // of the present tab

  constructor(place, page) {
    this.#page = page;
    const {kind, ref} = page;
    const list = ref.namespace ? `${listURL(kind)}?ns=${encodeURIComponent(ref.namespace)}` : listURL(kind);
    fill(place, h('div', {class: 'crumbs-row'}, h('p', {class: 'crumbs'}, h('a', {href: list}, pluralKind(kind)),
      ref.namespace ? [' in ', h('a', {href: `/p/object/core/v1/namespaces/-/${encodeURIComponent(ref.namespace)}`},
        ref.namespace)] : null), this.#actions), this.#note, this.#tabs, this.#panel);
    const classes = place.classList;
    this.fit = (isFixed) => classes.toggle('fixed', isFixed);
    page.signal.addEventListener('abort', () => {
      this.#controller?.abort();
      this.fit(false);
    });
    let present = '';
    page.onObject(async (object) => {
      const actions = await actionsFor(page, object);
      const key = actions.map((action) => action.label).join();
      if (page.signal.aborted || key === present) return;
      present = key;
      fill(this.#actions, actions.map((action) => h('button', {type: 'button',
        class: action.danger ? 'danger-quiet' : null, on: {click: () => action.run(page.object)}}, action.label)));
    });
  }

  note(text) {
    this.#note.hidden = text === '';
    setText(this.#note, text);
  }

  hideActions() {
    this.#actions.replaceChildren();
  }

  /** Shows a tab, or the first one if the visitor may not use it. */
  async choose(name) {
    const page = this.#page;
    const may = await Promise.all(tabs.map(async (tab) => (!tab.applies || tab.applies(page)) &&
      (!tab.right || allowed(tab.right(page)))));
    if (page.signal.aborted) return;
    this.#shown = tabs.filter((tab, i) => may[i]);
    this.#open(this.#shown.find((tab) => tab.name === name) ?? this.#shown[0]);
  }

  #open(chosen) {
    this.#controller?.abort();
    this.#controller = new AbortController();
    fill(this.#tabs, this.#shown.map((tab) => h('button', {type: 'button', role: 'tab',
      'aria-selected': String(tab === chosen), tabindex: tab === chosen ? '0' : '-1',
      on: {click: () => this.#choose(tab), keydown: (event) => this.#key(event, tab)}}, tab.title)));
    this.#panel.setAttribute('aria-label', chosen.title);
    this.#panel.className = `panel panel-${chosen.name}`;
    this.fit(['logs', 'terminal'].includes(chosen.name));
    chosen.show(fill(this.#panel), this.#page, this.#controller.signal);
  }

  #choose(tab) {
    if (!shell.router.mayLeave()) return;
    shell.setQuery({tab: tab.name === 'summary' ? '' : tab.name});
    this.#open(tab);
    this.#tabs.querySelector('[aria-selected="true"]')?.focus();
  }

  #key(event, tab) {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step) return;
    const at = this.#shown.indexOf(tab) + step;
    this.#choose(this.#shown[(at + this.#shown.length) % this.#shown.length]);
  }
}

function showSummary(panel, page, signal) {
  const render = (object) => {
    if (signal.aborted || panel.contains(document.activeElement) && panel.querySelector('[data-keep]')) return;
    fill(panel, drawSummary(page, object, signal));
  };
  fill(panel, h('p', {class: 'muted'}, 'Loading…'));
  page.onObject(render, signal);
}

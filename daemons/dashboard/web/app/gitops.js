// GitSources as a tree: sources, and the objects that they have applied, with health and drift.

import {actionsFor} from './actions.js';
import {conditions, facts, objectLink, status} from './parts.js';
import {button, fill, h, setText} from './dom.js';
import {collectionPath, findKind, lookUp, objectPath, objectURL, splitVersion} from './kinds.js';
import {healthOf} from './health.js';
import {json} from './api.js';
import {shell} from './shell.js';
import {watchList} from './watch.js';

const pageSize = 100; // objects of a source that are shown at a time
const parallel = 6; // requests for the health of objects

/** Parses an entry of an inventory, such as "apps/v1 Deployment shop/web". */
function parseEntry(text) {
  const [apiVersion, kind, ...rest] = text.split(' ');
  const full = rest.join(' ');
  const at = full.indexOf('/');
  return {text, apiVersion, kind, namespace: at < 0 ? '' : full.slice(0, at), name: full.slice(at + 1)};
}

/** Returns the state of a source in a word. */
function stateOf(source) {
  if (source.spec.suspend) return ['Suspended', 'warn'];
  const ready = (source.status?.conditions ?? []).find((c) => c.type === 'Ready');
  if (!ready) return ['Waiting', 'warn'];
  if (ready.status === 'True') return (source.status.drifted ?? []).length > 0 ? ['Drifted', 'warn'] : ['Ready', 'ok'];
  return [ready.reason || 'Not ready', ready.status === 'False' ? 'bad' : 'warn'];
}

/** Shows the sources. */
export async function showGitOps(place, {query, signal}) {
  shell.setTitle('GitOps', {namespaced: true});
  const kind = await lookUp('gitops.clusterctl.local', 'gitsources');
  if (signal.aborted) return;
  if (!kind) {
    fill(place, h('p', {class: 'note'}, 'This cluster has no GitSources. A git_source block in the configuration ' +
      'makes the cluster follow a repository.'));
    return;
  }
  const tree = h('ul', {class: 'tree', 'aria-label': 'Sources'});
  const note = h('p', {class: 'note', role: 'status'}, 'Loading…');
  fill(place, note, tree);
  const rows = new Map(); // by UID
  const draw = (sources) => {
    if (signal.aborted) return;
    note.hidden = sources.length > 0;
    note.classList.remove('bad');
    setText(note, 'There are no sources here.');
    const name = (source) => `${source.metadata.namespace}/${source.metadata.name}`;
    const sorted = sources.toSorted((a, b) => (name(a) < name(b) ? -1 : 1));
    const uids = new Set(sorted.map((source) => source.metadata.uid));
    for (const [uid, row] of rows) {
      if (uids.has(uid)) continue;
      row.element.remove();
      rows.delete(uid);
    }
    sorted.forEach((source, i) => {
      const {uid} = source.metadata;
      if (!rows.has(uid)) rows.set(uid, new SourceRow(kind, source, signal));
      const row = rows.get(uid);
      if (tree.children[i] !== row.element) tree.insertBefore(row.element, tree.children[i] ?? null);
      row.update(source);
    });
  };
  watchList(collectionPath(kind, query.get('ns') ?? ''), {}, draw, (err) => {
    note.hidden = false;
    note.classList.add('bad');
    setText(note, err.message);
  }, signal);
}

/** SourceRow is a source in the tree. Its objects are read when it is opened. */
class SourceRow {
  #kind;
  #signal;
  #source;
  #status = h('span', {class: 'status'});
  #about = h('span', {class: 'muted about'});
  #actions = h('span', {class: 'actions'});
  #details = h('div', {class: 'details', hidden: true});
  #toggle;
  #shown = '';

  constructor(kind, source, signal) {
    this.#kind = kind;
    this.#signal = signal;
    const {namespace, name} = source.metadata;
    this.#toggle = h('button', {type: 'button', class: 'twist', 'aria-expanded': 'false',
      'aria-label': `Objects of ${name}`, on: {click: () => this.#open()}}, '▸');
    this.element = h('li', {class: 'source'}, h('div', {class: 'head'}, this.#toggle,
      h('a', {href: objectURL({...kind, namespace, name})}, `${namespace}/${name}`), this.#status, this.#about,
      this.#actions), this.#details);
  }

  update(source) {
    this.#source = source;
    const [text, tone] = stateOf(source);
    setText(this.#status, text);
    this.#status.className = `status ${tone}`;
    const revision = source.status?.appliedRevision ?? '';
    setText(this.#about, [revision.replace(/(sha\d+:[0-9a-f]{10})[0-9a-f]+/, '$1'), source.spec.url].filter(Boolean)
      .join(' · '));
    this.#drawActions(source);
    if (!this.#details.hidden) this.#draw();
  }

  async #drawActions(source) {
    const {namespace, name} = source.metadata;
    const page = {kind: this.#kind, isRow: true, ref: {...this.#kind, namespace, name}};
    const actions = (await actionsFor(page, source)).filter((action) => action.label !== 'Delete');
    const key = actions.map((action) => action.label).join();
    if (key === this.#shown) return;
    this.#shown = key;
    fill(this.#actions, actions.map((action) => button(action.label, () => action.run(this.#source),
      {class: 'quiet', 'aria-label': `${action.label} ${name}`})));
  }

  #open() {
    const isOpen = this.#details.hidden;
    this.#details.hidden = !isOpen;
    this.#toggle.setAttribute('aria-expanded', String(isOpen));
    setText(this.#toggle, isOpen ? '▾' : '▸');
    if (isOpen) this.#draw();
  }

  #draw() {
    const {spec, status: st = {}} = this.#source;
    const list = (title, entries, tone) => (entries ?? []).length > 0 && h('div', {class: `note ${tone}`},
      h('strong', null, title), h('ul', null, entries.map((text) => h('li', null, text))));
    const key = JSON.stringify([spec, st]);
    if (this.#details.shown === key) return;
    this.#details.shown = key;
    fill(this.#details,
      facts([['Depends on', (spec.dependsOn ?? []).map((d) => `${d.namespace ? `${d.namespace}/` : ''}${d.name}`)
        .join(', ')], ['Folder', spec.path], ['Renderer', spec.renderer], ['Drift', spec.drift ?? 'revert'],
      ['Rendered', st.renderedRevision !== st.appliedRevision && st.renderedRevision]]),
      conditions(st.conditions), list('Not applied', st.failed, 'bad'), list('Drift', st.drifted, 'warn'),
      list('Being deleted', st.pruning, 'warn'), this.#objects(st));
  }

  /** Returns the objects of the inventory, by kind. */
  #objects(st) {
    const entries = (st.inventory ?? []).map(parseEntry);
    if (entries.length === 0) return h('p', {class: 'muted'}, 'No objects are applied.');
    entries.sort((a, b) => (`${a.kind} ${a.namespace} ${a.name}` < `${b.kind} ${b.namespace} ${b.name}` ? -1 : 1));
    const list = h('ul', {class: 'inventory', 'aria-label': 'Objects'});
    const more = button('Show more', () => add(), {class: 'quiet'});
    let shown = 0;
    const add = () => {
      const part = entries.slice(shown, shown + pageSize);
      shown += part.length;
      const rows = part.map((entry) => this.#objectRow(entry, st));
      list.append(...rows.map((row) => row.element));
      more.hidden = shown >= entries.length;
      setText(more, `Show more of ${entries.length}`);
      readHealth(rows, this.#signal);
    };
    add();
    return [list, more];
  }

  #objectRow(entry, st) {
    const health = h('span', {class: 'status'}, '…');
    const isDrifted = (st.drifted ?? []).some((text) => text === entry.text || text.startsWith(`${entry.text}:`) ||
      text.includes(`${entry.kind} ${entry.namespace ? `${entry.namespace}/` : ''}${entry.name}:`));
    const isPruned = (st.pruning ?? []).includes(entry.text);
    const element = h('li', null, h('span', {class: 'kind muted'}, entry.kind),
      objectLink(entry.apiVersion, entry.kind, entry.namespace, entry.name, `${entry.namespace ?
        `${entry.namespace}/` : ''}${entry.name}`), health, isDrifted && status('Drifted', 'warn'),
      isPruned && status('Being deleted', 'warn'));
    return {entry, element, health};
  }
}

/** Reads objects, some at a time, and shows their health. */
async function readHealth(rows, signal) {
  const queue = [...rows];
  const work = async () => {
    for (let row = queue.shift(); row && !signal.aborted; row = queue.shift()) {
      const [text, tone] = await healthText(row.entry, signal);
      setText(row.health, text);
      row.health.className = `status ${tone}`;
    }
  };
  await Promise.all(Array.from({length: parallel}, work));
}

async function healthText(entry, signal) {
  const kind = findKind(entry.apiVersion, entry.kind);
  if (!kind) return ['Kind is not served', 'warn'];
  const namespace = kind.namespaced ? entry.namespace : '';
  try {
    const object = await json(objectPath({...kind, version: splitVersion(entry.apiVersion).version, namespace,
      name: entry.name}), {signal});
    const {state, text} = healthOf(object);
    return [text, state];
  } catch (err) {
    if (err.code === 404) return ['Missing', 'bad'];
    return [err.code === 403 ? 'Not visible to you' : err.message, ''];
  }
}

// All kinds that the API serves, also custom resources.

import {allKinds, listURL} from './kinds.js';
import {fill, h, setText} from './dom.js';
import {plainTable} from './parts.js';
import {plural} from './format.js';
import {shell} from './shell.js';

/** Shows the kinds by their groups. */
export function showKinds(place, {query}) {
  shell.setTitle('All kinds');
  const filter = h('input', {type: 'search', class: 'filter', placeholder: 'Filter', 'aria-label': 'Filter',
    'data-filter': true, spellcheck: 'false', value: query.get('filter') ?? '', on: {input: () => draw()}});
  const counter = h('span', {class: 'muted count', role: 'status', 'aria-live': 'polite'});
  const result = h('div', {class: 'even'});
  const draw = () => {
    shell.setQuery({filter: filter.value});
    const word = filter.value.trim().toLowerCase();
    const kinds = allKinds().filter((kind) => kind.verbs.includes('list') && [kind.kind, kind.group, kind.resource,
      ...(kind.shortNames ?? [])].some((text) => text.toLowerCase().includes(word)));
    setText(counter, plural(kinds.length, 'kind'));
    const groups = Map.groupBy(kinds, (kind) => kind.group);
    fill(result, [...groups.keys()].sort().map((group) => h('section', null, h('h2', null, group || 'core'),
      plainTable(group || 'core', ['Kind', 'Resource', 'Version', 'Scope', 'Short names'], groups.get(group)
        .toSorted((a, b) => (a.kind < b.kind ? -1 : 1)).map((kind) => [h('a', {href: listURL(kind)}, kind.kind),
          kind.resource, kind.version, kind.namespaced ? 'Namespace' : 'Cluster', (kind.shortNames ?? [])
            .join(', ')])))));
  };
  fill(place, h('div', {class: 'toolbar'}, filter, counter), result);
  draw();
}

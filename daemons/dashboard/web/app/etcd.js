// The members of etcd, as far as the visitor may know.

import {bytes} from './format.js';
import {fill, h} from './dom.js';
import {get} from './api.js';
import {pause} from './watch.js';
import {plainTable, status} from './parts.js';
import {shell} from './shell.js';
import {unseenSection} from './certificates.js';

const refresh = 10_000; // milliseconds

function role(member) {
  if (member.learner) return status('Learner', 'warn');
  return member.leader ? status('Leader', 'ok') : 'Follower';
}

/** Shows the members and follows them. */
export async function showEtcd(place, {signal}) {
  shell.setTitle('etcd');
  fill(place, h('p', {class: 'muted'}, 'Loading…'));
  while (!signal.aborted) {
    const {members, unseen} = await get('/api/etcd', undefined, signal);
    if (signal.aborted) return;
    fill(place, (members ?? []).length > 0 && plainTable('Members', ['Name', 'Role', 'Endpoints', 'Version',
      'Database', 'ID'],
      members.map((m) => [m.name, role(m), h('span', {class: 'mono'}, (m.endpoints ?? []).join(', ')), m.version ?? '',
        m.dbSize ? bytes(m.dbSize) : '', h('span', {class: 'mono'}, String(m.id ?? ''))])), unseenSection(unseen));
    await pause(refresh, signal);
  }
}

// When certificates expire, as far as the visitor may know.

import {fill, h} from './dom.js';
import {get} from './api.js';
import {localTime} from './format.js';
import {plainTable, section, status} from './parts.js';
import {shell} from './shell.js';

const soon = 30; // days
const urgent = 7;

function daysText(days) {
  if (days < 0) return status('Expired', 'bad');
  return status(`${days} days`, days < urgent ? 'bad' : days < soon ? 'warn' : 'ok');
}

/** Returns a section with what could not be read. */
export function unseenSection(unseen) {
  return (unseen ?? []).length > 0 && section('Not visible to you', h('ul', null, unseen.map((text) =>
    h('li', null, text))));
}

/** Shows the certificates, the one that expires first at the top. */
export async function showCertificates(place, {signal}) {
  shell.setTitle('Certificates');
  fill(place, h('p', {class: 'muted'}, 'Loading…'));
  const {certificates, unseen} = await get('/api/certificates', undefined, signal);
  if (signal.aborted) return;
  const sorted = (certificates ?? []).toSorted((a, b) => a.daysLeft - b.daysLeft);
  fill(place, sorted.length > 0 ? plainTable('Certificates', ['Certificate', 'Subject', 'Left', 'Expires'],
    sorted.map((c) => [c.name, c.subject, daysText(c.daysLeft), localTime(c.expires)])) :
    h('p', {class: 'note'}, 'There are no certificates that you may see.'), unseenSection(unseen));
}

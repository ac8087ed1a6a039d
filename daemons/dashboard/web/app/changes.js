// Draws the difference of two texts.

import {diffLines, hunks} from './diff.js';
import {h} from './dom.js';

const marks = {same: ' ', removed: '-', added: '+', skip: '⋯'};
const names = {removed: 'removed', added: 'added'}; // for screen readers

/** Returns an element with the lines that differ and some around them. */
export function drawChanges(before, after) {
  const lines = hunks(diffLines(before, after));
  return h('div', {class: 'diff', role: 'region', tabindex: '0', 'aria-label': 'Changes'}, lines.map((line) =>
    h('div', {class: `line ${line.kind}`}, h('span', {class: 'mark'}, marks[line.kind],
      names[line.kind] && h('span', {class: 'hidden'}, names[line.kind])), line.text || ' ')));
}

// Keyboard shortcuts that work on every page.

import {button, h} from './dom.js';
import {pages} from './navigation.js';
import {showDialog} from './dialog.js';

const prefixTime = 1500; // milliseconds in which a letter may follow g

function isTyping(target) {
  return target.closest?.('input, textarea, select, [contenteditable], .terminal') !== null;
}

/** Shows all shortcuts. */
export function showHelp() {
  const rows = [
    ['/', 'Filter or search on this page'],
    ['↑ ↓ PgUp PgDn Home End', 'Move in a table'],
    ['Enter', 'Open the row'],
    ['[ ]', 'Former and next tab'],
    ['Esc', 'Close a dialog, or leave a field'],
    ['Ctrl+]', 'Leave the terminal'],
    ['?', 'This help'],
    ...pages.map(([, title, letter]) => [`g ${letter}`, title]),
  ];
  const list = h('dl', {class: 'shortcuts'}, rows.map(([keys, text]) => [h('dt', null, h('kbd', null, keys)),
    h('dd', null, text)]));
  const dialog = showDialog('Keyboard', list, [button('Close', () => dialog.close(), {class: 'primary'})]);
}

function moveTab(step) {
  const tabs = [...document.querySelectorAll('.tabs a, .tabs button')];
  const at = tabs.findIndex((tab) => tab.matches('[aria-current], [aria-selected="true"]'));
  tabs[(at + step + tabs.length) % tabs.length]?.click();
}

/**
 * Starts to listen for shortcuts.
 * @param {(address: string) => void} open shows a page
 */
export function listenForKeys(open) {
  let prefixUntil = 0;
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
    if (isTyping(event.target)) {
      if (event.key === 'Escape' && !event.target.closest('.terminal')) leave(event.target);
      return;
    }
    const isSecond = performance.now() < prefixUntil;
    prefixUntil = 0;
    const page = isSecond && pages.find(([, , letter]) => letter === event.key);
    if (page) open(page[0]);
    else if (event.key === 'g') prefixUntil = performance.now() + prefixTime;
    else if (event.key === '/') document.querySelector('[data-filter]')?.focus();
    else if (event.key === '?') showHelp();
    else if (event.key === '[') moveTab(-1);
    else if (event.key === ']') moveTab(1);
    else return;
    event.preventDefault();
  });
}

/** Empties a filter, or leaves the field and returns to the table. */
function leave(field) {
  if (field.type === 'search' && field.value) {
    field.value = '';
    field.dispatchEvent(new Event('input', {bubbles: true}));
    return;
  }
  const table = document.querySelector('.table');
  if (table) table.focus();
  else field.blur();
}

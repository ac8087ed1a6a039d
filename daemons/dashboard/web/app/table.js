// A live table with virtual scrolling: the server filters and sorts, and sends the rows around the visible ones.

import {age, count, tone} from './format.js';
import {h, setText} from './dom.js';
import {live} from './live.js';

const rowHeight = 32; // pixels, as in the style sheet
const margin = 60; // rows beyond the visible ones that are requested
const maxLimit = 500; // rows in one window, by the server's limit
const maxRows = 1_000_000; // browsers limit the height of elements
const minWidth = 5; // characters of a column
const maxWidth = 44;
const barWidth = 11; // of a bar beside the text, with the space around both
const ageInterval = 10_000;

/**
 * LiveTable shows the objects of one kind. Rows keep their elements as long as they are in the window, and rows do not
 * move while a mouse button is down, so that updates never lose a click.
 */
export class LiveTable {
  #options;
  #handle;
  #spec;
  #columns = []; // {name, at, isAge}
  #widths = [];
  #rows = new Map(); // elements by UID
  #frame = {total: 0, matched: 0, offset: 0, rows: []};
  #active = -1; // index of the row that arrow keys move
  #isHeld = false; // a mouse button is down
  #pending = null; // frame that arrived meanwhile
  #timer = 0;

  /**
   * @param {{label: string, spec: object, showNamespace: boolean, isWide: boolean, open: (row: object) => void,
   *   link: (row: object) => string, onFrame: (frame: object) => void, onSort: (sort: string) => void}} options
   * @param {AbortSignal} signal closes the table
   */
  constructor(options, signal) {
    this.#options = options;
    this.#spec = {filter: '', sort: 'name', offset: 0, limit: 100, ...options.spec};
    this.head = h('div', {class: 'tr thead', role: 'row'});
    this.body = h('div', {class: 'tbody', role: 'rowgroup'});
    this.element = h('div', {class: 'table', role: 'grid', tabindex: '0', 'aria-label': options.label,
      'aria-busy': 'true', on: {
        keydown: (event) => this.#key(event),
        scroll: () => this.#scrolled(),
        click: (event) => this.#click(event),
        pointerdown: () => { this.#isHeld = true; },
        pointermove: (event) => { if (this.#isHeld && event.buttons === 0) this.#release(); },
      }}, h('div', {role: 'rowgroup', class: 'theads'}, this.head), this.body);
    const release = () => setTimeout(() => this.#release());
    document.addEventListener('pointerup', release, {signal});
    document.addEventListener('pointercancel', release, {signal});
    addEventListener('resize', () => this.#scrolled(), {signal});
    const ages = setInterval(() => this.#draw(), ageInterval);
    this.#handle = live.open(this.#spec, (frame) => this.#receive(frame));
    signal.addEventListener('abort', () => {
      this.#handle.close();
      clearInterval(ages);
      clearTimeout(this.#timer);
    });
  }

  /** Changes the filter or the sorting, and shows the first rows. */
  change(change) {
    Object.assign(this.#spec, change, {offset: 0});
    this.#active = -1;
    this.element.scrollTop = 0;
    this.element.setAttribute('aria-busy', 'true');
    this.#handle.window(this.#spec);
  }

  /** Shows or hides the columns of lower priority. */
  setWide(isWide) {
    this.#options.isWide = isWide;
    if (this.#frame.columns) this.#setColumns(this.#frame.columns);
    this.#draw();
  }

  #receive(frame) {
    this.#options.onFrame(frame);
    if (!frame.rows) return;
    if (this.#isHeld) {
      this.#pending = {...this.#pending, ...frame};
      return;
    }
    this.#apply(frame);
  }

  #release() {
    this.#isHeld = false;
    const frame = this.#pending;
    this.#pending = null;
    if (frame) this.#apply(frame);
  }

  #apply(frame) {
    const columns = frame.columns ?? this.#frame.columns ?? [];
    const isNew = JSON.stringify(columns) !== JSON.stringify(this.#frame.columns);
    this.#frame = {...frame, columns};
    if (isNew) this.#setColumns(columns);
    if (frame.state !== 'loading') this.element.setAttribute('aria-busy', 'false');
    this.#draw();
    this.#scrolled();
  }

  #setColumns(columns) {
    this.#columns = [];
    columns.forEach((column, at) => {
      if (at === 1 && this.#options.showNamespace) this.#columns.push({name: 'Namespace', at: -1});
      if (column.priority > 0 && !this.#options.isWide) return;
      this.#columns.push({name: column.name, at, isAge: column.name === 'Age', isName: at === 0});
    });
    if (columns.length === 1 && this.#options.showNamespace) this.#columns.push({name: 'Namespace', at: -1});
    this.#widths = this.#columns.map((column) => column.name.length + 6);
    this.#rows.clear();
    this.body.replaceChildren();
    this.#drawHead();
  }

  #drawHead() {
    const isDown = this.#spec.sort.startsWith('-');
    const sort = this.#spec.sort.slice(isDown ? 1 : 0);
    this.head.replaceChildren(...this.#columns.map((column) => {
      const key = column.name.toLowerCase();
      const order = key !== sort ? 'none' : isDown ? 'descending' : 'ascending';
      const mark = {none: '', ascending: ' ↑', descending: ' ↓'}[order];
      return h('div', {role: 'columnheader', 'aria-sort': order, class: column.isName ? 'td name' : 'td'},
        h('button', {type: 'button', tabindex: '-1', on: {click: () => this.#sort(key, order)}}, column.name + mark));
    }));
  }

  #sort(key, order) {
    const sort = order === 'ascending' ? `-${key}` : key;
    this.change({sort});
    this.#drawHead();
    this.#options.onSort(sort);
  }

  #draw() {
    const {rows, offset, matched} = this.#frame;
    if (!this.#frame.columns) return;
    this.body.style.height = `${Math.min(matched, maxRows) * rowHeight}px`;
    this.element.setAttribute('aria-rowcount', String(matched + 1));
    const stale = new Set(this.#rows.keys());
    rows.forEach((row, i) => {
      stale.delete(row.uid);
      let element = this.#rows.get(row.uid);
      if (!element) {
        element = this.#newRow();
        this.#rows.set(row.uid, element);
        this.body.appendChild(element);
      }
      this.#drawRow(element, row, offset + i);
    });
    for (const uid of stale) {
      this.#rows.get(uid).remove();
      this.#rows.delete(uid);
    }
    const widths = this.#widths.map((n) => Math.max(n, minWidth));
    this.element.style.setProperty('--columns', widths.map((n) => `minmax(${n}ch, ${n}fr)`).join(' '));
    this.element.style.setProperty('--width', `${widths.reduce((sum, n) => sum + n, 0)}ch`);
  }

  #newRow() {
    return h('div', {class: 'tr', role: 'row'}, this.#columns.map((column) =>
      h('div', {class: column.isName ? 'td name' : 'td', role: 'gridcell'},
        column.isName ? h('a', {tabindex: '-1'}) : null)));
  }

  #drawRow(element, row, index) {
    element.row = row;
    element.style.transform = `translateY(${index * rowHeight}px)`;
    element.setAttribute('aria-rowindex', String(index + 2));
    element.classList.toggle('active', index === this.#active);
    element.classList.toggle('odd', index % 2 === 1);
    this.#columns.forEach((column, i) => {
      const cell = element.children[i];
      let text = column.at < 0 ? row.namespace : String(row.cells[column.at] ?? '');
      if (column.isAge && row.created) text = age(row.created);
      if (column.isName) {
        const link = cell.firstChild;
        const address = this.#options.link(row);
        if (link.getAttribute('href') !== address) link.setAttribute('href', address);
        setText(link, text);
      } else if (cell.textContent !== text) {
        drawCell(cell, text, column.name);
      }
      if (cell.title !== text) cell.title = text;
      const room = cell.querySelector('.bar') ? barWidth : cell.querySelector('.status') ? 6 : 3;
      this.#widths[i] = Math.max(this.#widths[i], Math.min(maxWidth, text.length + room));
    });
  }

  /** Requests other rows if the visible ones are not far inside the window. */
  #scrolled() {
    if (this.#timer) return;
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      const first = Math.floor(this.element.scrollTop / rowHeight);
      const visible = Math.ceil(this.element.clientHeight / rowHeight);
      const {offset, rows, matched} = this.#frame;
      const last = Math.min(first + visible, matched);
      const hasFirst = first >= offset && first - offset >= Math.min(first, margin / 3);
      const hasLast = offset + rows.length >= Math.min(matched, last + margin / 3);
      if (hasFirst && hasLast) return;
      const next = {
        offset: Math.max(0, first - margin),
        limit: Math.min(maxLimit, visible + 2 * margin),
      };
      if (next.offset === this.#spec.offset && next.limit === this.#spec.limit) return;
      Object.assign(this.#spec, next);
      this.#handle.window(this.#spec);
    }, 60);
  }

  #click(event) {
    if (event.target.closest('a, button') || String(getSelection())) return;
    const row = event.target.closest('.tr')?.row;
    if (row) this.#options.open(row);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / rowHeight) - 2);
    const steps = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity};
    if (event.key in steps) {
      event.preventDefault();
      this.#activate(this.#active + steps[event.key]);
    } else if (event.key === 'Enter' && event.target === this.element) {
      const row = this.#frame.rows[this.#active - this.#frame.offset];
      if (row) this.#options.open(row);
    }
  }

  #activate(index) {
    this.#active = Math.max(0, Math.min(this.#frame.matched - 1, index));
    const top = this.#active * rowHeight;
    const room = this.element.clientHeight - rowHeight; // below the header
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + rowHeight > this.element.scrollTop + room) this.element.scrollTop = top + rowHeight - room;
    this.#draw();
    const row = this.#frame.rows[this.#active - this.#frame.offset];
    if (row) setText(document.getElementById('spoken'), `${row.namespace} ${row.cells.join(', ')}`);
  }
}

/** Draws a cell: a status has a mark beside its text, and parts of a whole have a bar. */
function drawCell(cell, text, column) {
  const name = column.toLowerCase();
  const parts = /^(\d+)\/(\d+)$/.exec(text);
  if (['status', 'phase', 'state', 'reason', 'type', 'health'].includes(name) && tone(text)) {
    cell.replaceChildren(h('span', {class: `status ${tone(text)}`}, text));
  } else if (parts && ['ready', 'completions', 'available'].includes(name)) {
    const whole = Math.max(1, Number(parts[2]));
    const bar = h('span', {class: parts[1] === parts[2] ? 'bar' : 'bar part', 'aria-hidden': 'true'}, h('i'));
    bar.firstChild.style.width = `${Math.min(100, (Number(parts[1]) / whole) * 100)}%`;
    cell.replaceChildren(text, bar);
  } else if (name === 'ready' && (text === 'True' || text === 'False')) {
    cell.replaceChildren(h('span', {class: `status ${text === 'True' ? 'ok' : 'bad'}`}, text));
  } else {
    cell.textContent = text;
  }
}

/** Returns how many objects a frame shows, for example 120 of 50,000. */
export function countText(frame) {
  return frame.matched === frame.total ? count(frame.total) : `${count(frame.matched)} of ${count(frame.total)}`;
}

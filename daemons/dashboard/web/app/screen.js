// Draws the screen of a terminal into the document, and turns keys into what programs read.

import {h} from './dom.js';
import {plainStyle} from './sgr.js';

/** Reports whether two styles look alike. */
function isSame(a, b) {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}

/**
 * Sets the colours of an element. Backgrounds of the palette are darker than its text, so that text of any colour is
 * readable on them. Inverse text is dark on the colour that the text would have.
 */
function paint(element, style) {
  const index = style.bold && typeof style.fg === 'number' && style.fg < 8 ? style.fg + 8 : style.fg;
  const [text, background] = style.inverse ? ['backgroundColor', 'color'] : ['color', 'backgroundColor'];
  if (typeof index === 'string') element.style[text] = index;
  else if (index !== null) element.classList.add(style.inverse ? `on-${index}` : `fg-${index}`);
  if (typeof style.bg === 'string') element.style[background] = style.bg;
  else if (style.bg !== null && !style.inverse) element.classList.add(`bg-${style.bg}`);
}

/** Returns the element of neighbouring cells with one style. */
function span(text, style, isCursor) {
  const names = ['bold', 'dim', 'italic', 'underline', 'strike', 'hidden', 'inverse'].filter((name) => style[name]);
  const element = h('span', {class: [...names.map((name) => `vt-${name}`), isCursor && 'vt-cursor'].filter(Boolean)
    .join(' ') || null}, text);
  paint(element, style);
  return element;
}

/** Returns the elements of a line. cursor is the column of the cursor, or -1. */
export function drawLine(line, cursor) {
  const spans = [];
  let text = '';
  let style = null;
  const flush = () => {
    if (text) spans.push(span(text, style, false));
    text = '';
  };
  // Without spaces at its end, so that copied text has none.
  let end = line.length;
  while (end > cursor + 1 && end > 0 && line[end - 1].char === ' ' && isSame(line[end - 1].style, plainStyle)) end--;
  line.slice(0, end).forEach((cell, x) => {
    if (x === cursor) {
      flush();
      spans.push(span(cell.char || ' ', cell.style, true));
      style = null;
      return;
    }
    if (style === null || !isSame(style, cell.style)) flush();
    style = cell.style;
    text += cell.char;
  });
  flush();
  return spans;
}

const cursorKeys = {ArrowUp: 'A', ArrowDown: 'B', ArrowRight: 'C', ArrowLeft: 'D', Home: 'H', End: 'F'};
const tildeKeys = {Insert: 2, Delete: 3, PageUp: 5, PageDown: 6, F5: 15, F6: 17, F7: 18, F8: 19, F9: 20, F10: 21,
  F11: 23, F12: 24};
const functionKeys = {F1: 'P', F2: 'Q', F3: 'R', F4: 'S'};
const plainKeys = {Backspace: '\x7f', Tab: '\t', Escape: '\x1b'};

/**
 * Returns what a key sends to the program, or '' for keys that the browser keeps. These include text and Enter, which
 * arrive as input, so that input methods and the keyboards of phones work.
 * @param {KeyboardEvent} event
 * @param {{applicationCursor: boolean}} modes
 */
export function keySequence(event, modes) {
  const {key, ctrlKey, altKey, shiftKey, metaKey} = event;
  if (metaKey) return '';
  const modifier = 1 + (shiftKey ? 1 : 0) + (altKey ? 2 : 0) + (ctrlKey ? 4 : 0);
  if (cursorKeys[key]) {
    if (modifier > 1) return `\x1b[1;${modifier}${cursorKeys[key]}`;
    return `\x1b${modes.applicationCursor ? 'O' : '['}${cursorKeys[key]}`;
  }
  if (tildeKeys[key]) return `\x1b[${tildeKeys[key]}${modifier > 1 ? `;${modifier}` : ''}~`;
  if (functionKeys[key]) return modifier > 1 ? `\x1b[1;${modifier}${functionKeys[key]}` : `\x1bO${functionKeys[key]}`;
  if (key === 'Tab' && shiftKey) return '\x1b[Z';
  if (plainKeys[key]) return (altKey ? '\x1b' : '') + plainKeys[key];
  if (key === 'Enter') return altKey ? '\x1b\r' : '';
  if ([...key].length !== 1) return '';
  if (ctrlKey && !altKey) {
    if (shiftKey && 'cCvV'.includes(key)) return ''; // copy and paste
    const code = key.toUpperCase().charCodeAt(0);
    if (key === ' ' || key === '@') return '\x00';
    return code >= 0x41 && code <= 0x5f ? String.fromCharCode(code - 0x40) : '';
  }
  return altKey && !ctrlKey ? `\x1b${key}` : '';
}

// Colours and attributes of text in a terminal: the control sequence SGR of ECMA-48, with colours as in xterm.

/**
 * @typedef {{fg: number|string|null, bg: number|string|null, bold?: boolean, dim?: boolean, italic?: boolean,
 *   underline?: boolean, inverse?: boolean, hidden?: boolean, strike?: boolean}} Style a colour is an index of the
 *   palette of 16, a text such as rgb(1, 2, 3), or null for the terminal's own
 */

/** The style of text without attributes. */
export const plainStyle = Object.freeze({fg: null, bg: null});

const on = {1: 'bold', 2: 'dim', 3: 'italic', 4: 'underline', 7: 'inverse', 8: 'hidden', 9: 'strike'};
const off = {22: ['bold', 'dim'], 23: ['italic'], 24: ['underline'], 27: ['inverse'], 28: ['hidden'], 29: ['strike']};

/** Returns a colour of the palette of 256. */
function paletteColor(index) {
  if (index < 16) return index;
  if (index > 255) return null;
  if (index >= 232) {
    const level = 8 + (index - 232) * 10;
    return `rgb(${level}, ${level}, ${level})`;
  }
  const levels = [0, 95, 135, 175, 215, 255];
  const at = index - 16;
  return `rgb(${levels[Math.floor(at / 36)]}, ${levels[Math.floor(at / 6) % 6]}, ${levels[at % 6]})`;
}

/** Reads the colour behind 38 or 48. Returns it, and how many parameters it took. */
function longColor(list) {
  const byte = (text) => Math.max(0, Math.min(255, Number.parseInt(text, 10) || 0));
  if (list[0] === '5') return {color: paletteColor(byte(list[1])), used: 2};
  if (list[0] === '2') return {color: `rgb(${byte(list[1])}, ${byte(list[2])}, ${byte(list[3])})`, used: 4};
  return {color: null, used: 1};
}

/**
 * Returns a style as changed by the parameters of SGR.
 * @param {Style} style
 * @param {string} text the parameters, separated by semicolons; those of a colour also by colons
 * @returns {Style}
 */
export function applySGR(style, text) {
  let next = {...style};
  const params = text.split(';').slice(0, 64);
  for (let i = 0; i < params.length; i++) {
    const [head, ...rest] = params[i].split(':');
    const code = Number.parseInt(head, 10) || 0;
    if (code === 0) {
      next = {...plainStyle};
    } else if (code === 4 && rest[0] === '0') {
      next.underline = false;
    } else if (on[code]) {
      next[on[code]] = true;
    } else if (off[code]) {
      for (const name of off[code]) next[name] = false;
    } else if (code === 38 || code === 48) {
      const isColon = rest.length > 0;
      // The form with colons may have a colour space before the three parts.
      const list = isColon && rest[0] === '2' && rest.length > 4 ? ['2', ...rest.slice(2)] : rest;
      const {color, used} = longColor(isColon ? list : params.slice(i + 1));
      next[code === 38 ? 'fg' : 'bg'] = color;
      if (!isColon) i += used;
    } else {
      shortColor(next, code);
    }
  }
  return Object.freeze(next);
}

function shortColor(style, code) {
  if (code >= 30 && code <= 37) style.fg = code - 30;
  if (code === 39) style.fg = null;
  if (code >= 40 && code <= 47) style.bg = code - 40;
  if (code === 49) style.bg = null;
  if (code >= 90 && code <= 97) style.fg = code - 82;
  if (code >= 100 && code <= 107) style.bg = code - 92;
}

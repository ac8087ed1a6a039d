// The screen of a terminal: a model that reads the output of a program. It draws nothing.
// It follows ECMA-48 and what xterm adds to it, as far as shells, editors and pagers use it.

import {applySGR, plainStyle} from './sgr.js';
import {charWidth, lineDrawing} from './characters.js';

const maxScrollback = 2000; // lines
const maxParams = 32;
const maxParam = 9999;
const maxText = 4096; // characters of an operating system command, such as a title

/**
 * @typedef {{char: string, style: object, wide?: boolean}} Cell
 */

/** VT is the screen, the cursor and the modes. */
export class VT {
  /**
   * @param {number} cols
   * @param {number} rows
   * @param {(text: string) => void} answer sends an answer to the program, such as the cursor's position
   */
  constructor(cols, rows, answer = () => {}) {
    this.cols = cols;
    this.rows = rows;
    this.answer = answer;
    this.title = '';
    this.onBell = () => {};
    this.reset();
  }

  /** Returns to the state of a new terminal. */
  reset() {
    this.scrollback = [];
    this.scrolled = 0; // number of lines that were ever added to the scrollback
    this.isAlternate = false;
    this.mainLines = null; // of the main screen, while the alternate one is shown
    this.mainSaved = null;
    this.style = plainStyle;
    this.lines = Array.from({length: this.rows}, () => this.#blankLine());
    this.x = 0;
    this.y = 0;
    this.isWrapPending = false; // the cursor is behind the last column
    this.top = 0; // of the scroll region
    this.bottom = this.rows - 1;
    this.saved = null;
    this.modes = {wrap: true, origin: false, insert: false, cursor: true, applicationCursor: false,
      bracketedPaste: false, newLine: false};
    this.charsets = ['B', 'B'];
    this.charset = 0;
    this.tabs = new Set(Array.from({length: 200}, (_, i) => i * 8));
    this.lastChar = '';
    this.#state = 'ground';
    this.dirty = new Set(); // rows to draw
    this.touchAll();
  }

  #state = 'ground';
  #params = '';
  #prefix = '';
  #text = '';

  touchAll() {
    for (let y = 0; y < this.rows; y++) this.dirty.add(y);
  }

  #blank() {
    return {char: ' ', style: this.style.bg === null ? plainStyle : {...plainStyle, bg: this.style.bg}};
  }

  #blankLine() {
    return Array.from({length: this.cols}, () => this.#blank());
  }

  /** Changes the size. Lines above the cursor move to the scrollback if there is less room. */
  resize(cols, rows) {
    const fit = (lines, style) => {
      for (const line of lines) {
        while (line.length < cols) line.push({char: ' ', style});
        line.length = cols;
      }
    };
    for (const lines of [this.lines, this.mainLines ?? []]) fit(lines, plainStyle);
    this.cols = cols;
    while (this.lines.length > rows) {
      if (this.y < this.lines.length - 1) {
        this.lines.pop();
      } else {
        this.#keep(this.lines.shift());
        this.y--;
      }
    }
    while (this.lines.length < rows) this.lines.push(this.#blankLine());
    if (this.mainLines) {
      while (this.mainLines.length < rows) this.mainLines.push(this.#blankLine());
      this.mainLines.length = rows;
    }
    this.rows = rows;
    this.x = Math.min(this.x, cols - 1);
    this.y = Math.max(0, Math.min(this.y, rows - 1));
    this.isWrapPending = false;
    this.top = 0;
    this.bottom = rows - 1;
    this.touchAll();
  }

  #keep(line) {
    if (this.isAlternate) return;
    this.scrollback.push(line);
    this.scrolled++;
    if (this.scrollback.length > maxScrollback) this.scrollback.shift();
  }

  /** Reads output of the program. */
  write(text) {
    this.dirty.add(this.y);
    for (const char of text) this.#read(char);
    this.dirty.add(this.y);
  }

  #read(char) {
    const code = char.codePointAt(0);
    const isText = this.#state === 'osc' || this.#state === 'string';
    if (code === 0x18 || code === 0x1a) this.#state = 'ground';
    else if (code === 0x1b) this.#escape(isText);
    else if (code < 0x20 && !isText) this.#control(code);
    else this.#inState(char, code);
  }

  #escape(isText) {
    if (isText && this.#state === 'osc') this.#command();
    this.#state = 'escape';
    this.#params = '';
    this.#prefix = '';
  }

  #inState(char, code) {
    switch (this.#state) {
      case 'ground':
        if (code !== 0x7f && !(code >= 0x80 && code < 0xa0)) this.#print(char);
        break;
      case 'escape':
        this.#escaped(char);
        break;
      case 'csi':
        this.#csi(char, code);
        break;
      case 'charset':
        this.charsets[this.#prefix === ')' ? 1 : 0] = char;
        this.#state = 'ground';
        break;
      case 'skip':
        this.#state = 'ground';
        break;
      case 'osc':
        if (code === 0x07) {
          this.#command();
          this.#state = 'ground';
        } else if (this.#text.length < maxText) {
          this.#text += char;
        }
        break;
      default: // a string that is not understood, up to its end
        if (code === 0x07) this.#state = 'ground';
    }
  }

  #command() {
    const match = /^[02];([^]*)$/.exec(this.#text);
    if (match) this.title = match[1].replace(/[\x00-\x1f\x7f]/g, '');
    this.#text = '';
  }

  #control(code) {
    switch (code) {
      case 0x07: this.onBell(); break;
      case 0x08: this.#moveTo(this.x - (this.isWrapPending ? 0 : 1), this.y); break;
      case 0x09: this.#tab(1); break;
      case 0x0a: case 0x0b: case 0x0c:
        this.#index();
        if (this.modes.newLine) this.x = 0;
        break;
      case 0x0d: this.#moveTo(0, this.y); break;
      case 0x0e: this.charset = 1; break;
      case 0x0f: this.charset = 0; break;
      default: // others have no effect on a screen
    }
  }

  #tab(count) {
    for (let i = 0; i < Math.min(count, this.cols); i++) {
      do this.x++; while (this.x < this.cols - 1 && !this.tabs.has(this.x));
    }
    this.#moveTo(this.x, this.y);
  }

  #backTab(count) {
    for (let i = 0; i < Math.min(count, this.cols); i++) {
      do this.x--; while (this.x > 0 && !this.tabs.has(this.x));
    }
    this.#moveTo(this.x, this.y);
  }

  #print(char) {
    const mapped = this.charsets[this.charset] === '0' ? lineDrawing[char] ?? char : char;
    const width = charWidth(mapped);
    if (width === 0) {
      const at = this.lines[this.y][Math.max(0, this.isWrapPending ? this.x : this.x - 1)];
      if (at.char.length < 16) at.char += mapped;
      return;
    }
    if ((this.isWrapPending || (width === 2 && this.x === this.cols - 1)) && this.modes.wrap) {
      this.x = 0;
      this.#index();
    }
    this.isWrapPending = false;
    const line = this.lines[this.y];
    if (this.modes.insert) {
      for (let i = 0; i < width; i++) line.splice(this.x, 0, this.#blank());
      line.length = this.cols;
    }
    line[this.x] = {char: mapped, style: this.style};
    if (width === 2 && this.x + 1 < this.cols) line[this.x + 1] = {char: '', style: this.style};
    this.lastChar = char;
    this.x += width;
    if (this.x >= this.cols) {
      this.x = this.cols - 1;
      this.isWrapPending = true;
    }
  }

  /** Moves the cursor to the next line, and scrolls at the end of the region. */
  #index() {
    this.isWrapPending = false;
    this.dirty.add(this.y);
    if (this.y === this.bottom) this.#scrollUp(1);
    else if (this.y < this.rows - 1) this.y++;
    this.dirty.add(this.y);
  }

  #reverseIndex() {
    this.dirty.add(this.y);
    if (this.y === this.top) this.#scrollDown(1);
    else if (this.y > 0) this.y--;
    this.dirty.add(this.y);
  }

  #scrollUp(count, from = this.top) {
    for (let i = 0; i < Math.min(count, this.bottom - from + 1); i++) {
      const [line] = this.lines.splice(from, 1);
      if (from === 0 && this.bottom === this.rows - 1) this.#keep(line);
      this.lines.splice(this.bottom, 0, this.#blankLine());
    }
    for (let y = from; y <= this.bottom; y++) this.dirty.add(y);
  }

  #scrollDown(count, from = this.top) {
    for (let i = 0; i < Math.min(count, this.bottom - from + 1); i++) {
      this.lines.splice(this.bottom, 1);
      this.lines.splice(from, 0, this.#blankLine());
    }
    for (let y = from; y <= this.bottom; y++) this.dirty.add(y);
  }

  #moveTo(x, y) {
    this.dirty.add(this.y);
    this.x = Math.max(0, Math.min(this.cols - 1, x));
    this.y = Math.max(0, Math.min(this.rows - 1, y));
    this.isWrapPending = false;
    this.dirty.add(this.y);
  }

  /** Moves the cursor up or down, but not out of the scroll region that it is in. */
  #moveRows(count) {
    const isIn = this.y >= this.top && this.y <= this.bottom;
    const [first, last] = isIn ? [this.top, this.bottom] : [0, this.rows - 1];
    this.#moveTo(this.x, Math.max(first, Math.min(last, this.y + count)));
  }

  #position(x, y) {
    const first = this.modes.origin ? this.top : 0;
    const last = this.modes.origin ? this.bottom : this.rows - 1;
    this.#moveTo(x, Math.max(first, Math.min(last, first + y)));
  }

  #save() {
    this.saved = {x: this.x, y: this.y, style: this.style, charsets: [...this.charsets], charset: this.charset,
      origin: this.modes.origin};
  }

  #restore() {
    const saved = this.saved ?? {x: 0, y: 0, style: plainStyle, charsets: ['B', 'B'], charset: 0, origin: false};
    Object.assign(this, {style: saved.style, charsets: [...saved.charsets], charset: saved.charset});
    this.modes.origin = saved.origin;
    this.#moveTo(saved.x, saved.y);
  }

  #escaped(char) {
    this.#state = 'ground';
    switch (char) {
      case '[': this.#state = 'csi'; break;
      case ']':
        this.#state = 'osc';
        this.#text = '';
        break;
      case 'P': case 'X': case '^': case '_': this.#state = 'string'; break;
      case '(': case ')':
        this.#prefix = char;
        this.#state = 'charset';
        break;
      case '*': case '+': case '#': case '%': case ' ': this.#state = 'skip'; break;
      case '7': this.#save(); break;
      case '8': this.#restore(); break;
      case 'D': this.#index(); break;
      case 'E':
        this.x = 0;
        this.#index();
        break;
      case 'H': this.tabs.add(this.x); break;
      case 'M': this.#reverseIndex(); break;
      case 'c': this.reset(); break;
      default: // keypad modes and others have no effect on the screen
    }
  }

  #csi(char, code) {
    if (code >= 0x40 && code <= 0x7e) {
      this.#state = 'ground';
      const list = this.#params.split(';').slice(0, maxParams).map((text) => Math.min(maxParam,
        Number.parseInt(text, 10) || 0));
      this.#sequence(char, list);
    } else if (code >= 0x3c && code <= 0x3f && this.#params === '') {
      this.#prefix = char;
    } else if (code >= 0x20 && code <= 0x2f) {
      this.#prefix += char;
    } else if (this.#params.length < 256) {
      this.#params += char;
    }
  }

  /** Carries out a control sequence. */
  #sequence(final, params) {
    const count = Math.max(1, params[0]);
    const key = this.#prefix + final;
    switch (key) {
      case 'A': this.#moveRows(-count); break;
      case 'B': case 'e': this.#moveRows(count); break;
      case 'C': case 'a': this.#moveTo(this.x + count, this.y); break;
      case 'D': this.#moveTo(this.x - count, this.y); break;
      case 'E': this.x = 0; this.#moveRows(count); break;
      case 'F': this.x = 0; this.#moveRows(-count); break;
      case 'G': case '`': this.#moveTo(count - 1, this.y); break;
      case 'H': case 'f': this.#position((params[1] || 1) - 1, count - 1); break;
      case 'I': this.#tab(count); break;
      case 'Z': this.#backTab(count); break;
      case 'd': this.#position(this.x, count - 1); break;
      case 'J': this.#eraseScreen(params[0]); break;
      case 'K': this.#eraseLine(params[0]); break;
      case 'L': if (this.y >= this.top && this.y <= this.bottom) this.#scrollDown(count, this.y); break;
      case 'M': if (this.y >= this.top && this.y <= this.bottom) this.#scrollUp(count, this.y); break;
      case 'S': this.#scrollUp(count); break;
      case 'T': this.#scrollDown(count); break;
      case '@': this.#insertCells(count); break;
      case 'P': this.#deleteCells(count); break;
      case 'X': this.#erase(this.y, this.x, this.x + count); break;
      case 'b': for (let i = 0; i < Math.min(count, this.cols * this.rows) && this.lastChar; i++) {
        this.#print(this.lastChar);
      } break;
      case 'm': this.style = applySGR(this.style, this.#params); break;
      case 'r': this.#region(params); break;
      case 's': this.#save(); break;
      case 'u': this.#restore(); break;
      case 'g': if (params[0] === 3) this.tabs.clear(); else this.tabs.delete(this.x); break;
      case 'h': case 'l': this.#mode(params, final === 'h'); break;
      case '?h': case '?l': this.#privateMode(params, final === 'h'); break;
      case 'n': this.#report(params[0]); break;
      case 'c': this.answer('\x1b[?62;22c'); break;
      case '>c': this.answer('\x1b[>1;10;0c'); break;
      case '!p': this.#softReset(); break;
      default: // not understood: without effect
    }
  }

  #softReset() {
    this.style = plainStyle;
    this.top = 0;
    this.bottom = this.rows - 1;
    Object.assign(this.modes, {wrap: true, origin: false, insert: false, cursor: true, applicationCursor: false});
  }

  #report(kind) {
    if (kind === 5) this.answer('\x1b[0n');
    if (kind === 6) this.answer(`\x1b[${this.y + 1 - (this.modes.origin ? this.top : 0)};${this.x + 1}R`);
  }

  #region(params) {
    const top = Math.max(1, params[0]) - 1;
    const bottom = Math.min(this.rows, params[1] || this.rows) - 1;
    if (top >= bottom) return;
    this.top = top;
    this.bottom = bottom;
    this.#position(0, 0);
  }

  #mode(params, isOn) {
    if (params.includes(4)) this.modes.insert = isOn;
    if (params.includes(20)) this.modes.newLine = isOn;
  }

  #privateMode(params, isOn) {
    const names = {1: 'applicationCursor', 7: 'wrap', 25: 'cursor', 2004: 'bracketedPaste'};
    for (const param of params) {
      if (names[param]) this.modes[names[param]] = isOn;
      if (param === 25) this.dirty.add(this.y);
      if (param === 6) {
        this.modes.origin = isOn;
        this.#position(0, 0);
      }
      if ((param === 1048 || param === 1049) && isOn) this.#save();
      if (param === 47 || param === 1047 || param === 1049) this.#alternate(isOn);
      if ((param === 1048 || param === 1049) && !isOn) this.#restore();
    }
  }

  #alternate(isOn) {
    if (isOn === this.isAlternate) return;
    if (isOn) {
      this.mainLines = this.lines;
      this.mainSaved = this.saved;
      this.isAlternate = true;
      this.lines = Array.from({length: this.rows}, () => this.#blankLine());
    } else {
      this.lines = this.mainLines;
      this.saved = this.mainSaved;
      this.mainLines = null;
      this.isAlternate = false;
    }
    this.top = 0;
    this.bottom = this.rows - 1;
    this.touchAll();
  }

  #erase(y, from, to) {
    const line = this.lines[y];
    for (let x = from; x < Math.min(to, this.cols); x++) line[x] = this.#blank();
    this.isWrapPending = false;
    this.dirty.add(y);
  }

  #eraseLine(kind) {
    this.#erase(this.y, kind === 0 ? this.x : 0, kind === 1 ? this.x + 1 : this.cols);
  }

  #eraseScreen(kind) {
    if (kind === 3) {
      this.scrollback = [];
      this.touchAll();
      return;
    }
    if (kind === 0 || kind === 1) this.#eraseLine(kind);
    const first = kind === 0 ? this.y + 1 : 0;
    const last = kind === 1 ? this.y : this.rows;
    for (let y = first; y < last; y++) this.#erase(y, 0, this.cols);
  }

  #insertCells(count) {
    const line = this.lines[this.y];
    for (let i = 0; i < Math.min(count, this.cols - this.x); i++) line.splice(this.x, 0, this.#blank());
    line.length = this.cols;
    this.dirty.add(this.y);
  }

  #deleteCells(count) {
    const line = this.lines[this.y];
    line.splice(this.x, Math.min(count, this.cols - this.x));
    while (line.length < this.cols) line.push(this.#blank());
    this.dirty.add(this.y);
  }

  /** Returns the text of a line of the screen, without spaces at its end. */
  lineText(y) {
    return this.lines[y].map((cell) => cell.char).join('').trimEnd();
  }

  /** Returns the text of the screen. */
  text() {
    return this.lines.map((_, y) => this.lineText(y)).join('\n').trimEnd();
  }
}

// A terminal in a container: the screen in the page, connected by the exec protocol v5.channel.k8s.io.

import {button, fill, h, setText} from './dom.js';
import {drawLine, keySequence} from './screen.js';
import {VT} from './vt.js';
import {containerNames} from './logs.js';
import {objectPath} from './kinds.js';
import {shell} from './shell.js';

const protocol = 'v5.channel.k8s.io';

/** Channels of the protocol: the first byte of each message. */
const channels = {stdin: 0, stdout: 1, stderr: 2, error: 3, resize: 4};

/** Shells that are tried in their order, by one command. */
const command = ['sh', '-c', 'TERM=xterm-256color; export TERM; if command -v bash >/dev/null 2>&1; then exec bash; ' +
  'else exec sh; fi'];

/** Shows a terminal in a container of the page's pod. */
export function showTerminal(panel, page, signal) {
  let isStarted = false;
  page.onObject((pod) => {
    if (isStarted) return;
    isStarted = true;
    const running = new Set([...(pod.status?.containerStatuses ?? []), ...(pod.status?.initContainerStatuses ?? []),
      ...(pod.status?.ephemeralContainerStatuses ?? [])].filter((c) => c.state?.running).map((c) => c.name));
    const names = containerNames(pod).filter((name) => running.has(name));
    if (names.length === 0) fill(panel, h('p', {class: 'note bad'}, 'No container of this pod runs.'));
    else new Terminal(panel, page, names, signal).open();
  }, signal);
}

class Terminal {
  #page;
  #socket = null;
  #vt = new VT(80, 24, (text) => this.#send(text));
  #rows = [];
  #isScheduled = false;
  #drawnScrollback = 0;
  #decoder = new TextDecoder();

  constructor(panel, page, names, signal) {
    this.#page = page;
    this.container = h('select', {'aria-label': 'Container', on: {change: () => this.open()}},
      names.map((name) => h('option', {value: name}, name)));
    this.state = h('span', {class: 'muted', role: 'status', 'aria-live': 'polite'});
    this.again = button('Connect again', () => this.open(), {hidden: true});
    this.history = h('div', {class: 'vt-history'});
    this.screen = h('div', {class: 'vt-screen', role: 'img', 'aria-label': 'Screen of the terminal'});
    this.input = h('textarea', {class: 'vt-input', 'aria-label': 'Terminal input. Control and ] leaves the terminal.',
      autocapitalize: 'off', autocomplete: 'off', spellcheck: 'false', rows: '1', on: {
        keydown: (event) => this.#key(event),
        beforeinput: (event) => this.#beforeInput(event),
        input: (event) => { if (!event.isComposing) this.#typed(); },
        compositionend: () => this.#typed(),
        paste: (event) => this.#paste(event),
      }});
    this.probe = h('span', {class: 'vt-probe', 'aria-hidden': 'true'}, 'W'.repeat(50));
    this.box = h('div', {class: 'terminal', on: {
      click: () => { if (!String(getSelection())) this.input.focus({preventScroll: true}); },
      focusin: () => this.#draw(), focusout: () => this.#draw(),
    }}, this.history, this.screen, this.input, this.probe);
    fill(panel, h('div', {class: 'toolbar'}, names.length > 1 ? this.container :
      h('span', null, names[0]), this.again, this.state, h('span', {class: 'muted'},
      'Ctrl+] leaves the terminal')), this.box);
    const observer = new ResizeObserver(() => this.#resize());
    observer.observe(this.box);
    signal.addEventListener('abort', () => {
      observer.disconnect();
      this.#close();
    });
    shell.router.guard(() => (this.#socket ? 'End the terminal session?' : ''));
  }

  #close() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  /** Starts a shell in the chosen container. */
  open() {
    this.#close();
    this.#vt.reset();
    this.#drawnScrollback = 0;
    this.history.replaceChildren();
    this.#decoder = new TextDecoder();
    this.again.hidden = true;
    setText(this.state, 'Connecting…');
    const query = new URLSearchParams({container: this.container.value, stdin: 'true', stdout: 'true', tty: 'true'});
    for (const word of command) query.append('command', word);
    const address = new URL(`${objectPath(this.#page.ref, 'exec')}?${query}`, location.href);
    address.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(address, [protocol]);
    socket.binaryType = 'arraybuffer';
    this.#socket = socket;
    let reason = '';
    let isOpen = false;
    socket.addEventListener('open', () => {
      isOpen = true;
      setText(this.state, 'Connected');
      this.#resize(true);
      this.input.focus({preventScroll: true});
    });
    socket.addEventListener('message', (event) => {
      const data = new Uint8Array(event.data);
      if (data.length === 0) return;
      if (data[0] === channels.error) reason = endReason(data.subarray(1));
      else if (data[0] === channels.stdout || data[0] === channels.stderr) this.#output(data.subarray(1));
    });
    socket.addEventListener('close', () => {
      if (socket !== this.#socket) return;
      this.#socket = null;
      this.again.hidden = false;
      setText(this.state, reason || (isOpen ? 'The connection is closed.' : 'The connection was refused. The ' +
        'container may have no shell, or you may not run commands in it.'));
      this.#schedule();
    });
  }

  #send(text) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return;
    const data = new TextEncoder().encode(text);
    const message = new Uint8Array(data.length + 1);
    message[0] = channels.stdin;
    message.set(data, 1);
    this.#socket.send(message);
  }

  #output(data) {
    this.#vt.write(this.#decoder.decode(data, {stream: true}));
    this.#schedule();
  }

  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => {
      this.#isScheduled = false;
      this.#draw();
    });
  }

  /** Draws the rows that have changed, and lines that have left the screen. */
  #draw() {
    const vt = this.#vt;
    while (this.#rows.length < vt.rows) this.#rows.push(this.screen.appendChild(h('div', {class: 'vt-row'})));
    while (this.#rows.length > vt.rows) this.#rows.pop().remove();
    const isAtEnd = this.box.scrollTop + this.box.clientHeight >= this.box.scrollHeight - 24;
    if (vt.scrollback.length < this.history.childElementCount) this.history.replaceChildren();
    const known = this.history.childElementCount;
    const fresh = vt.scrolled - this.#drawnScrollback;
    const missing = known === 0 ? vt.scrollback : vt.scrollback.slice(Math.max(0, vt.scrollback.length - fresh));
    if (fresh > 0 || known === 0) {
      this.history.append(...missing.map((line) => h('div', {class: 'vt-row'}, drawLine(line, -1))));
      while (this.history.childElementCount > vt.scrollback.length) this.history.firstChild.remove();
    }
    this.#drawnScrollback = vt.scrolled;
    vt.dirty.add(vt.y);
    const isCursorShown = vt.modes.cursor && this.#socket !== null;
    for (const y of vt.dirty) {
      if (y < vt.rows) this.#rows[y].replaceChildren(...drawLine(vt.lines[y], isCursorShown && y === vt.y ? vt.x : -1));
    }
    vt.dirty.clear();
    if (isAtEnd) this.box.scrollTop = this.box.scrollHeight;
  }

  /** Fits the screen into the box, and tells the program its size. */
  #resize(isForced = false) {
    const cell = this.probe.getBoundingClientRect();
    const style = getComputedStyle(this.box);
    const width = this.box.clientWidth - Number.parseFloat(style.paddingLeft) - Number.parseFloat(style.paddingRight);
    const height = this.box.clientHeight - Number.parseFloat(style.paddingTop) - Number.parseFloat(style.paddingBottom);
    if (cell.width === 0 || width <= 0 || height <= 0) return;
    const cols = Math.max(20, Math.min(500, Math.floor(width / (cell.width / 50))));
    const rows = Math.max(5, Math.min(200, Math.floor(height / cell.height)));
    const isNew = cols !== this.#vt.cols || rows !== this.#vt.rows;
    if (isNew) {
      this.#vt.resize(cols, rows);
      this.#schedule();
    }
    if ((!isNew && !isForced) || this.#socket?.readyState !== WebSocket.OPEN) return;
    const text = new TextEncoder().encode(JSON.stringify({Width: cols, Height: rows}));
    this.#socket.send(new Uint8Array([channels.resize, ...text]));
  }

  #key(event) {
    if (event.isComposing) return;
    if (event.ctrlKey && event.key === ']') {
      event.preventDefault();
      document.querySelector('[role="tab"][aria-selected="true"]')?.focus();
      return;
    }
    const text = keySequence(event, this.#vt.modes);
    if (!text) return;
    event.preventDefault();
    this.box.scrollTop = this.box.scrollHeight;
    this.#send(text);
  }

  /** Sends Enter, which programs read as a carriage return. */
  #beforeInput(event) {
    if (event.inputType !== 'insertLineBreak' && event.inputType !== 'insertParagraph') return;
    event.preventDefault();
    this.#send('\r');
  }

  /** Sends the text that was entered. */
  #typed() {
    if (this.input.value === '') return;
    this.box.scrollTop = this.box.scrollHeight;
    this.#send(this.input.value);
    this.input.value = '';
  }

  #paste(event) {
    event.preventDefault();
    const text = event.clipboardData.getData('text').replace(/\r?\n/g, '\r');
    // The end mark inside of the text would let the rest act as keys.
    const safe = text.replaceAll('\x1b[201~', '');
    this.#send(this.#vt.modes.bracketedPaste ? `\x1b[200~${safe}\x1b[201~` : text);
  }
}

/** Returns why the program has ended, from the Status in the error channel. */
function endReason(data) {
  try {
    const status = JSON.parse(new TextDecoder().decode(data));
    if (status.status === 'Success') return 'The shell has ended.';
    const code = (status.details?.causes ?? []).find((cause) => cause.reason === 'ExitCode');
    return code ? `The shell has ended with exit code ${code.message}.` : status.message;
  } catch {
    return 'The shell has ended.';
  }
}

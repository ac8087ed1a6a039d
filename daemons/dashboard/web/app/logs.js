// The logs of a pod's container: followed, of the former container, and searched.

import {button, fill, h, setText} from './dom.js';
import {count} from './format.js';
import {objectPath} from './kinds.js';
import {pause, readLines} from './watch.js';
import {send} from './api.js';

const maxLines = 10_000; // kept in the page; older ones are removed
const tailLines = 2000; // requested at first
const escapes = /\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-_])/g;
const retryPause = 2000; // milliseconds before a broken stream is read again
const hiddenTime = 60_000; // milliseconds after which a hidden page stops following

/** Returns the names of a pod's containers, the main ones first. */
export function containerNames(pod) {
  return [...(pod.spec.containers ?? []), ...(pod.spec.initContainers ?? []), ...(pod.spec.ephemeralContainers ?? [])]
    .map((container) => container.name);
}

/** Shows the logs of the page's pod. */
export function showLogs(panel, page, signal) {
  let isStarted = false;
  page.onObject((pod) => {
    if (isStarted) return;
    isStarted = true;
    new LogView(panel, page, pod, signal).start();
  }, signal);
}

/** LogView shows the lines of one container. New lines are drawn together once per frame. */
class LogView {
  #page;
  #signal;
  #controller = null; // of the present stream
  #lines = []; // {text, element}
  #waiting = []; // lines that are not drawn yet
  #isScheduled = false;
  #matches = [];
  #at = -1; // index of the present match
  #options = {previous: false, follow: true, timestamps: false, wrap: true, only: false};

  constructor(panel, page, pod, signal) {
    this.#page = page;
    this.#signal = signal;
    this.container = h('select', {'aria-label': 'Container', on: {change: () => this.start()}},
      containerNames(pod).map((name) => h('option', {value: name}, name)));
    this.search = h('input', {type: 'search', class: 'filter', placeholder: 'Search', 'aria-label': 'Search the log',
      'data-filter': true, spellcheck: 'false', on: {
        input: () => this.#find(),
        keydown: (event) => { if (event.key === 'Enter') this.#step(event.shiftKey ? -1 : 1); },
      }});
    this.found = h('span', {class: 'muted count', role: 'status', 'aria-live': 'polite'});
    this.state = h('span', {class: 'muted', role: 'status'});
    this.output = h('div', {class: 'log wrap', role: 'log', tabindex: '0', 'aria-label': 'Log', 'aria-live': 'off'});
    this.download = h('a', {class: 'button quiet', download: `${page.ref.name}.log`}, 'Download');
    fill(panel, h('div', {class: 'toolbar'}, this.container, this.search, this.found,
      this.#toggle('Only matches', 'only', () => this.#find()), this.#toggle('Follow', 'follow', () => this.start()),
      this.#toggle('Previous', 'previous', () => this.start()),
      this.#toggle('Timestamps', 'timestamps', () => this.start()),
      this.#toggle('Wrap', 'wrap', () => this.output.classList.toggle('wrap', this.#options.wrap)), this.download,
      this.state), this.output);
    signal.addEventListener('abort', () => this.#controller?.abort());
    this.#stopWhenHidden();
  }

  /** Stops following some time after the page is hidden, since browsers allow few connections. */
  #stopWhenHidden() {
    let timer = 0;
    document.addEventListener('visibilitychange', () => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(() => this.#controller?.abort(), hiddenTime);
      else if (this.#controller?.signal.aborted) this.start();
    }, {signal: this.#signal});
    this.#signal.addEventListener('abort', () => clearTimeout(timer));
  }

  #toggle(label, option, onChange) {
    const control = button(label, () => {
      this.#options[option] = !this.#options[option];
      control.setAttribute('aria-pressed', String(this.#options[option]));
      onChange();
    }, {class: 'quiet', 'aria-pressed': String(this.#options[option])});
    return control;
  }

  #address(follow, extra) {
    const {previous, timestamps} = this.#options;
    const query = new URLSearchParams({container: this.container.value, ...extra});
    if (follow && !previous) query.set('follow', 'true');
    if (previous) query.set('previous', 'true');
    if (timestamps) query.set('timestamps', 'true');
    return `${objectPath(this.#page.ref, 'log')}?${query}`;
  }

  /** Reads the log from its last lines, and follows it if that is chosen. */
  async start() {
    this.#controller?.abort();
    const controller = new AbortController();
    this.#controller = controller;
    this.#lines = [];
    this.#waiting = [];
    this.output.replaceChildren();
    this.download.setAttribute('href', this.#address(false, {}));
    setText(this.state, 'Loading…');
    try {
      const path = this.#address(this.#options.follow, {tailLines});
      const response = await send(path, {signal: controller.signal, timeout: 0, accept: '*/*'});
      const isFollowed = this.#options.follow && !this.#options.previous;
      setText(this.state, isFollowed ? 'Following' : '');
      await readLines(response, (line) => this.#add(line, controller));
      if (isFollowed) setText(this.state, 'The container has ended its log.');
    } catch (err) {
      if (controller.signal.aborted) return;
      setText(this.state, err.message || 'The connection is lost.');
      if (err.code) return;
      await pause(retryPause, controller.signal); // the stream broke: read it again
      if (!controller.signal.aborted) this.start();
    }
  }

  #add(line, controller) {
    if (controller.signal.aborted) return;
    this.#waiting.push(line.replace(escapes, '').replace(/\r$/, ''));
    if (this.#waiting.length > maxLines) this.#waiting.shift();
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#isScheduled = false;
    const out = this.output;
    const isAtEnd = out.scrollTop + out.clientHeight >= out.scrollHeight - 8;
    const added = this.#waiting.splice(0).map((text) => ({text, element: h('div', {class: 'line'}, text || '\u00a0')}));
    this.#lines.push(...added);
    const old = this.#lines.splice(0, Math.max(0, this.#lines.length - maxLines));
    for (const line of old) line.element.remove();
    out.append(...added.filter((line) => line.element).map((line) => line.element));
    if (this.search.value) this.#mark(added);
    if (isAtEnd) out.scrollTop = out.scrollHeight;
  }

  /** Marks the matches in lines, and hides lines without one if that is chosen. */
  #mark(lines) {
    const wanted = this.search.value.toLowerCase();
    for (const line of lines) {
      const parts = wanted ? split(line.text, wanted) : [];
      line.element.hidden = parts.length < 2 && wanted !== '' && this.#options.only;
      if (parts.length < 2) {
        if (line.isMarked) fill(line.element, line.text || '\u00a0');
        line.isMarked = false;
        continue;
      }
      line.isMarked = true;
      fill(line.element, parts.map((part, i) => (i % 2 === 1 ? h('mark', null, part) : part)));
    }
    this.#matches = [...this.output.getElementsByTagName('mark')];
    const at = this.#at >= 0 ? `${this.#at + 1} of ` : '';
    setText(this.found, wanted ? `${at}${count(this.#matches.length)} found` : '');
  }

  #find() {
    this.#at = -1;
    this.#mark(this.#lines);
    if (this.#matches.length > 0) this.#step(-1);
  }

  /** Goes to the next or the former match. */
  #step(by) {
    if (this.#matches.length === 0) return;
    this.#matches[this.#at]?.classList.remove('present');
    const from = this.#at < 0 && by < 0 ? 0 : this.#at;
    this.#at = (from + by + this.#matches.length) % this.#matches.length;
    const match = this.#matches[this.#at];
    match.classList.add('present');
    match.scrollIntoView({block: 'center'});
    setText(this.found, `${this.#at + 1} of ${count(this.#matches.length)} found`);
  }
}

/** Splits a text at the matches of a word in lower case: odd parts are the matches. */
function split(text, word) {
  const lower = text.toLowerCase();
  if (lower.length !== text.length) return [text]; // some letters have lower cases of another length
  const parts = [];
  let from = 0;
  for (let at = lower.indexOf(word); at >= 0; at = lower.indexOf(word, from)) {
    parts.push(text.slice(from, at), text.slice(at, at + word.length));
    from = at + word.length;
  }
  return [...parts, text.slice(from)];
}

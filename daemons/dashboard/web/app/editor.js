// The YAML of an object: shown, edited, tried by a dry run of the server, compared, and applied.

import {button, fill, h} from './dom.js';
import {drawChanges} from './changes.js';
import {json} from './api.js';
import {allowed} from './access.js';
import {announce} from './dialog.js';
import {objectPath} from './kinds.js';
import {shell} from './shell.js';
import {toYAML} from './yaml.js';

/** Returns an object without what servers record about it. Values of Secrets are left out unless they may be seen. */
function shown(object, withManaged, hideValues) {
  const copy = structuredClone(object);
  if (!withManaged) delete copy.metadata.managedFields;
  if (!hideValues) return copy;
  for (const key of Object.keys(copy.data ?? {})) copy.data[key] = '(hidden)';
  const annotations = copy.metadata.annotations;
  const applied = 'kubectl.kubernetes.io/last-applied-configuration';
  if (annotations?.[applied]) annotations[applied] = '(hidden)';
  return copy;
}

/** Returns lines of YAML with keys and comments marked. */
function highlight(text) {
  return text.split('\n').map((line) => {
    const match = /^(\s*(?:- )*)((?:[A-Za-z0-9_./~-]+|"[^"]*"|'[^']*'):)( .*)?$/.exec(line);
    return h('div', {class: 'line'}, match ? [match[1], h('span', {class: 'key'}, match[2]), match[3] ?? ''] :
      line || '\n');
  });
}

/** Shows the YAML of the page's object. */
export async function showYAML(panel, page, signal) {
  const check = {verb: 'update', group: page.ref.group, resource: page.ref.resource, namespace: page.ref.namespace,
    name: page.ref.name};
  const mayEdit = page.kind.verbs.includes('update') && await allowed(check);
  if (signal.aborted) return;
  new Editor(panel, page, signal, mayEdit).show();
}

class Editor {
  #panel;
  #page;
  #signal;
  #mayEdit;
  #withManaged = false;
  #isHidden; // values of Secrets
  #isViewing = true;

  constructor(panel, page, signal, mayEdit) {
    this.#panel = panel;
    this.#page = page;
    this.#signal = signal;
    this.#mayEdit = mayEdit;
    this.#isHidden = page.kind.group === '' && page.kind.resource === 'secrets';
    this.isSecret = this.#isHidden;
  }

  /** Shows the YAML and follows the object's changes. */
  show() {
    this.#isViewing = true;
    const code = h('pre', {class: 'code', tabindex: '0', 'aria-label': 'YAML'});
    const draw = (object) => {
      if (this.#isViewing && !String(getSelection())) {
        fill(code, highlight(toYAML(shown(object, this.#withManaged, this.#isHidden))));
      }
    };
    const toggle = (label, isOn, change) => {
      const control = button(label, () => {
        change();
        control.setAttribute('aria-pressed', String(control.getAttribute('aria-pressed') !== 'true'));
        if (this.#page.object) draw(this.#page.object);
      }, {class: 'quiet', 'aria-pressed': String(isOn)});
      return control;
    };
    fill(this.#panel, h('div', {class: 'toolbar'},
      this.#mayEdit && button('Edit', () => this.#edit(), {class: 'primary'}),
      toggle('Managed fields', this.#withManaged, () => { this.#withManaged = !this.#withManaged; }),
      this.isSecret && toggle('Show values', !this.#isHidden, () => { this.#isHidden = !this.#isHidden; })), code);
    this.#page.onObject(draw, this.#signal);
  }

  #edit(text = toYAML(shown(this.#page.object, false, false)), base = this.#page.object) {
    this.#isViewing = false;
    const area = h('textarea', {class: 'code', 'aria-label': 'YAML', spellcheck: 'false', wrap: 'off', value: text});
    const problem = h('div', {class: 'note bad', role: 'alert', hidden: true});
    const original = toYAML(shown(base, false, false));
    const check = button('Check changes', async () => {
      problem.hidden = true;
      check.disabled = true;
      try {
        const result = await this.#put(area.value, true);
        this.#confirm(area.value, base, result);
      } catch (err) {
        problem.hidden = false;
        fill(problem, err.code === 409 ? 'The object has changed meanwhile. Cancel, and edit it again. ' : '',
          err.message);
      }
      check.disabled = false;
    }, {class: 'primary'});
    shell.router.guard(() => (area.value === original ? '' : 'Discard the changes to this object?'));
    fill(this.#panel, h('div', {class: 'toolbar'}, check, button('Cancel', () => this.#cancel()),
      h('span', {class: 'muted'}, 'The server checks the changes. Nothing is written yet.')), problem, area);
    area.focus();
    area.setSelectionRange(0, 0);
  }

  #cancel() {
    shell.router.guard(null);
    this.show();
  }

  /** Shows what the dry run would change, and applies it on confirmation. */
  #confirm(text, base, result) {
    const clean = (object) => {
      const copy = shown(object, false, false);
      delete copy.metadata.resourceVersion; // the dry run may have moved it
      delete copy.metadata.generation;
      return toYAML(copy);
    };
    const [before, after] = [clean(base), clean(result)];
    const problem = h('div', {class: 'note bad', role: 'alert', hidden: true});
    const apply = button('Apply', async () => {
      apply.disabled = true;
      try {
        await this.#put(text, false);
        announce(`${this.#page.kind.kind} ${this.#page.ref.name} is changed.`);
        this.#cancel();
      } catch (err) {
        problem.hidden = false;
        fill(problem, err.message);
        apply.disabled = false;
      }
    }, {class: 'primary'});
    const isSame = before === after;
    fill(this.#panel, h('div', {class: 'toolbar'}, !isSame && apply, button('Edit more', () => this.#edit(text, base)),
      button('Cancel', () => this.#cancel()), h('span', {class: 'muted'}, isSame ? 'The object would not change.' :
        'The server accepts these changes:')), problem, !isSame && drawChanges(before, after));
    this.#panel.querySelector('button').focus();
  }

  /** Sends the YAML. Its resourceVersion makes the server refuse it if the object has changed since. */
  #put(text, isDryRun) {
    const query = {fieldManager: 'clusterctl-dashboard', fieldValidation: 'Strict'};
    if (isDryRun) query.dryRun = 'All';
    return json(`${objectPath(this.#page.ref)}?${new URLSearchParams(query)}`,
      {method: 'PUT', body: text, type: 'application/yaml', signal: this.#signal});
  }
}

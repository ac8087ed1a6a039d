// Dialogs that ask before an action, and short messages about its result.

import {button, h, setText, uniqueID} from './dom.js';

/**
 * Shows a dialog until it is closed. Esc closes it.
 * @param {string} title
 * @param {any} content
 * @param {Array<HTMLElement>} buttons
 * @returns {HTMLDialogElement}
 */
export function showDialog(title, content, buttons) {
  const id = uniqueID('dialog');
  const dialog = h('dialog', {'aria-labelledby': id}, h('h2', {id}, title), h('div', {class: 'dialog-body'}, content),
    h('div', {class: 'dialog-buttons'}, buttons));
  dialog.addEventListener('close', () => dialog.remove());
  document.body.appendChild(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Asks for confirmation and runs the action. The dialog stays open and shows the error if the action fails.
 * @param {{title: string, text: any, label: string, danger?: boolean, fields?: any, typed?: string,
 *   action: () => Promise<string>}} options `typed` is a text that must be typed first; the action returns a message
 */
export function ask({title, text, label, danger, fields, typed, action}) {
  const problem = h('p', {class: 'problem', role: 'alert', hidden: true});
  const confirmButton = h('button', {type: 'submit', class: danger ? 'danger' : 'primary'}, label);
  const content = [h('p', null, text), fields];
  if (typed) {
    const id = uniqueID('typed');
    const input = h('input', {id, autocomplete: 'off', spellcheck: 'false', class: 'wide', on: {
      input: () => { confirmButton.disabled = input.value !== typed; },
    }});
    confirmButton.disabled = true;
    content.push(h('p', {class: 'field'}, h('label', {for: id}, 'Type ', h('strong', null, typed),
      ' to confirm'), input));
  }
  const form = h('form', {method: 'dialog'}, content, problem, h('div', {class: 'dialog-buttons'},
    button('Cancel', () => dialog.close()), confirmButton));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    confirmButton.disabled = true;
    problem.hidden = true;
    try {
      const message = await action();
      dialog.close();
      if (message) announce(message);
    } catch (err) {
      problem.hidden = false;
      setText(problem, err.message);
      confirmButton.disabled = false;
    }
  });
  const dialog = showDialog(title, form, []);
  (form.querySelector('input, select') ?? confirmButton).focus();
  return dialog;
}

const messageTime = 6000; // milliseconds

/**
 * Shows a message for some seconds. Screen readers read it aloud.
 * @param {string} text
 * @param {'ok'|'bad'} kind
 */
export function announce(text, kind = 'ok') {
  const place = document.getElementById('messages');
  const message = h('div', {class: `message ${kind}`}, text);
  place.appendChild(message);
  setTimeout(() => message.remove(), messageTime);
}

// Why an object does not run: the chain of causes, and what can be done.

import {button, fill, h} from './dom.js';
import {get} from './api.js';
import {announce} from './dialog.js';
import {resourceURL} from './kinds.js';

function refLink(ref) {
  const text = `${ref.kind} ${ref.namespace ? `${ref.namespace}/` : ''}${ref.name}`;
  const address = resourceURL(ref.apiGroup ?? '', ref.resource, ref.namespace ?? '', ref.name);
  return address ? h('a', {href: address}, text) : text;
}

function copyButton(text) {
  return button('Copy', async () => {
    try {
      await navigator.clipboard.writeText(text);
      announce('Copied.');
    } catch {
      announce('The browser does not allow copying here.', 'bad');
    }
  }, {class: 'quiet'});
}

function drawReport(report) {
  return [
    h('p', {class: `verdict ${report.healthy ? 'ok' : 'bad'}`}, report.verdict),
    (report.chain ?? []).length > 0 && h('ol', {class: 'chain'}, report.chain.map((step) => h('li', null,
      h('div', null, refLink(step.object), ' ', step.text), step.evidence && h('div', {class: 'muted'},
        step.evidence)))),
    (report.remedies ?? []).length > 0 && h('section', null, h('h2', null, 'What to do'), h('ul', {class: 'remedies'},
      report.remedies.map((remedy) => h('li', null, remedy.text,
        remedy.field && h('div', {class: 'muted'}, 'Field: ', h('code', null, remedy.field)),
        remedy.command && h('div', {class: 'command'}, h('code', null, remedy.command), copyButton(remedy.command)))))),
    (report.unseen ?? []).length > 0 && h('section', null, h('h2', null, 'Not visible to you'),
      h('ul', null, report.unseen.map((text) => h('li', null, text)))),
  ];
}

/** Shows why the page's object is as it is, and asks again on request. */
export function showWhy(panel, page, signal) {
  const {group, resource, namespace, name} = page.ref;
  const result = h('div', {'aria-live': 'polite'});
  const load = async () => {
    fill(result, h('p', {class: 'muted'}, 'Looking for the cause…'));
    try {
      const report = await get('/api/why', {group, resource, namespace, name}, signal);
      if (!signal.aborted) fill(result, drawReport(report));
    } catch (err) {
      if (!signal.aborted) fill(result, h('p', {class: 'note bad'}, err.message));
    }
  };
  fill(panel, h('div', {class: 'toolbar'}, button('Look again', load)), result);
  load();
}

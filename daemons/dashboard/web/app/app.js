// Starts the pages: loads the session and the kinds, and shows the page that the address names.

import {fill, h} from './dom.js';
import {get, setToken} from './api.js';
import {Router} from './router.js';
import {listenForKeys} from './keys.js';
import {lists, showKind, showList} from './list.js';
import {loadKinds} from './kinds.js';
import {shell} from './shell.js';
import {showCertificates} from './certificates.js';
import {showEtcd} from './etcd.js';
import {showGitOps} from './gitops.js';
import {showKinds} from './allkinds.js';
import {showNodes} from './nodes.js';
import {showObject} from './object.js';
import {showOverview} from './overview.js';

/** All pages, in the order in which their patterns are tried. */
const routes = [
  {pattern: /^\/$/, show: showOverview},
  {pattern: /^\/p\/nodes$/, show: showNodes},
  {pattern: /^\/p\/gitops$/, show: showGitOps},
  {pattern: /^\/p\/certificates$/, show: showCertificates},
  {pattern: /^\/p\/etcd$/, show: showEtcd},
  {pattern: /^\/p\/kinds$/, show: showKinds},
  {pattern: /^\/p\/list\/([^/]+)\/([^/]+)\/([^/]+)$/, show: showKind},
  {pattern: /^\/p\/object\/([^/]+)\/([^/]+)\/([^/]+)\/([^/]+)\/([^/]+)$/, show: showObject},
  ...Object.keys(lists).map((name) => ({pattern: new RegExp(`^/p/${name}$`), show: showList(name)})),
];

function showError(place, err) {
  fill(place, h('div', {class: 'note bad', role: 'alert'}, err.message));
}

async function start() {
  const root = document.getElementById('app');
  try {
    const session = await get('/api/session');
    setToken(session.csrf);
    const {frame, main} = shell.build(session);
    fill(root, frame);
    shell.router = new Router(routes, main, showError, () => shell.shown());
    listenForKeys((address) => shell.go(address === '/' ? address : shell.withNamespace(address)));
    await loadKinds();
    await shell.router.show();
  } catch (err) {
    showError(root, err);
  }
}

start();

// One WebSocket for all live tables of a page.

import {get} from './api.js';

const firstPause = 500; // milliseconds before a broken connection is opened again
const longestPause = 15_000;
const idleTime = 5000; // milliseconds without a table before the connection is closed

/**
 * @typedef {{group: string, version: string, resource: string, namespace: string, filter: string, sort: string,
 *   offset: number, limit: number}} TableSpec
 */

/** Live is the connection. It is opened with the first table, and closed some seconds after the last one. */
class Live {
  #socket = null;
  #tables = new Map(); // by ID: {spec, onFrame}
  #nextID = 1;
  #pause = firstPause;
  #timer = 0;
  #idle = 0; // timer that closes the connection

  /**
   * Opens a table.
   * @param {TableSpec} spec
   * @param {(frame: object) => void} onFrame is called for each frame of the table
   * @returns {{window: (change: object) => void, close: () => void}}
   */
  open(spec, onFrame) {
    const id = this.#nextID++;
    const table = {spec: {...spec}, onFrame};
    this.#tables.set(id, table);
    this.#connect();
    this.#send({id, op: 'open', ...table.spec});
    return {
      window: (change) => {
        Object.assign(table.spec, change);
        const {filter, sort, offset, limit} = table.spec;
        this.#send({id, op: 'window', filter, sort, offset, limit});
      },
      close: () => {
        if (!this.#tables.delete(id)) return;
        this.#send({id, op: 'close'});
        clearTimeout(this.#idle);
        if (this.#tables.size === 0) this.#idle = setTimeout(() => this.#disconnect(), idleTime);
      },
    };
  }

  #send(message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  #connect() {
    clearTimeout(this.#idle);
    if (this.#socket || this.#timer) return;
    const address = new URL('/api/live', location.href);
    address.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(address);
    this.#socket = socket;
    socket.addEventListener('open', () => {
      if (socket !== this.#socket) return;
      for (const [id, table] of this.#tables) this.#send({id, op: 'open', ...table.spec});
    });
    socket.addEventListener('message', (event) => this.#receive(JSON.parse(event.data)));
    socket.addEventListener('close', () => this.#lost(socket));
  }

  #receive(frame) {
    this.#pause = firstPause;
    const table = this.#tables.get(frame.id);
    if (!table) return;
    if (frame.error) this.#tables.delete(frame.id);
    table.onFrame(frame);
  }

  #lost(socket) {
    if (socket !== this.#socket) return;
    this.#socket = null;
    if (this.#tables.size === 0) return;
    for (const table of this.#tables.values()) table.onFrame({state: 'reconnecting'});
    this.#timer = setTimeout(async () => {
      // A refused WebSocket does not tell why. This request goes to the sign-in page if the session has ended.
      await get('/api/session').catch(() => null);
      this.#timer = 0;
      if (this.#tables.size > 0) this.#connect();
    }, this.#pause);
    this.#pause = Math.min(this.#pause * 2, longestPause);
  }

  #disconnect() {
    const socket = this.#socket;
    this.#socket = null;
    // Closing a connection that is not open yet would be reported as a failure.
    if (socket?.readyState === WebSocket.CONNECTING) socket.addEventListener('open', () => socket.close());
    else socket?.close();
  }
}

/** The connection of this page. */
export const live = new Live();

// The kinds that the API serves, and the paths of their objects.

import {get} from './api.js';

/**
 * @typedef {{group: string, version: string, kind: string, resource: string, namespaced: boolean, verbs: string[],
 *   shortNames: string[]}} Kind
 * @typedef {{group: string, version: string, resource: string, namespace: string, name: string}} Ref
 */

/** @type {Kind[]} */
let kinds = [];

/** Loads the kinds. */
export async function loadKinds() {
  kinds = await get('/api/kinds');
  return kinds;
}

/** Returns all kinds. */
export function allKinds() {
  return kinds;
}

/**
 * Returns the kind of a resource, in the given version or in the one that the API prefers.
 * @returns {Kind|undefined}
 */
export function findResource(group, resource, version = '') {
  const same = kinds.filter((k) => k.group === group && k.resource === resource);
  return same.find((k) => k.version === version) ?? same[0];
}

/**
 * Returns the kind of a resource. It loads the kinds again if it is missing, since it may be new.
 * @returns {Promise<Kind|undefined>}
 */
export async function lookUp(group, resource, version = '') {
  if (!findResource(group, resource)) await loadKinds();
  return findResource(group, resource, version);
}

/**
 * Returns the kind of an object by its apiVersion and kind.
 * @returns {Kind|undefined}
 */
export function findKind(apiVersion, kind) {
  const {group, version} = splitVersion(apiVersion);
  const same = kinds.filter((k) => k.group === group && k.kind === kind);
  return same.find((k) => k.version === version) ?? same[0];
}

/** Splits an apiVersion, such as apps/v1, into group and version. */
export function splitVersion(apiVersion) {
  const at = apiVersion.indexOf('/');
  if (at < 0) return {group: '', version: apiVersion};
  return {group: apiVersion.slice(0, at), version: apiVersion.slice(at + 1)};
}

/** Returns the path of a collection below the proxy. Without a namespace it is the collection of all namespaces. */
export function collectionPath(kind, namespace = '') {
  const root = kind.group ? `/k8s/apis/${encodeURIComponent(kind.group)}` : '/k8s/api';
  const scope = namespace ? `/namespaces/${encodeURIComponent(namespace)}` : '';
  return `${root}/${encodeURIComponent(kind.version)}${scope}/${encodeURIComponent(kind.resource)}`;
}

/**
 * Returns the path of an object, or of its subresource, below the proxy.
 * @param {Ref} ref
 */
export function objectPath(ref, subresource = '') {
  const path = `${collectionPath(ref, ref.namespace)}/${encodeURIComponent(ref.name)}`;
  return subresource ? `${path}/${subresource}` : path;
}

/** Returns the address of an object's page. */
export function objectURL(ref) {
  const parts = [ref.group || 'core', ref.version, ref.resource, ref.namespace || '-', ref.name];
  return `/p/object/${parts.map(encodeURIComponent).join('/')}`;
}

/** Returns the address of the page of an object that apiVersion and kind name, or '' if the kind is not served. */
export function urlOf(apiVersion, kind, namespace, name) {
  const found = findKind(apiVersion, kind);
  return found ? objectURL({...found, namespace: found.namespaced ? namespace : '', name}) : '';
}

/** Returns the address of the page of an object that group and resource name, or '' if it is not served. */
export function resourceURL(group, resource, namespace, name) {
  const found = findResource(group ?? '', resource);
  return found ? objectURL({...found, namespace: found.namespaced ? namespace : '', name}) : '';
}

/** Returns the address of the list of a kind's objects. */
export function listURL(kind) {
  return `/p/list/${encodeURIComponent(kind.group || 'core')}/${kind.version}/${encodeURIComponent(kind.resource)}`;
}

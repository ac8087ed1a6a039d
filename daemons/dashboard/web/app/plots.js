// Plots of the last hour, as SVG.

import {bytes, cores} from './format.js';
import {fill, h, setText, svg} from './dom.js';
import {get} from './api.js';
import {pause} from './watch.js';

const width = 360; // of the drawing, in its own units
const height = 120;
const left = 52; // room for labels
const bottom = 16;
const span = 3600; // seconds
const minRefresh = 10; // seconds
const maxRefresh = 60;

const titles = {cpu: 'CPU', memory: 'Memory'};
const formats = {cores: (n) => `${cores(n)}`, bytes};

/** Returns a round number at or above n, so that the axis has round labels. */
function niceMax(n, unit) {
  if (n <= 0) return unit === 'bytes' ? 1024 * 1024 : 0.01;
  const base = unit === 'bytes' ? 2 ** Math.floor(Math.log2(n)) : 10 ** Math.floor(Math.log10(n));
  for (const factor of unit === 'bytes' ? [1, 1.5, 2] : [1, 2, 5, 10]) {
    if (base * factor >= n) return base * factor;
  }
  return n;
}

function path(points, x, y) {
  return points.map(([time, value], i) => `${i ? 'L' : 'M'}${x(time).toFixed(1)} ${y(value).toFixed(1)}`).join(' ');
}

/** Splits points where a gap is longer than three intervals, so that no line is drawn over missing data. */
function segments(points, interval) {
  const parts = [];
  points.forEach((point, i) => {
    if (i === 0 || point[0] - points[i - 1][0] > Math.max(3 * interval, 90)) parts.push([]);
    parts.at(-1).push(point);
  });
  return parts;
}

/**
 * Returns a plot of one series.
 * @param {{name: string, unit: string, points: Array<[number, number]>}} series
 * @param {number} interval seconds between points
 */
function plot(series, interval) {
  const format = formats[series.unit] ?? String;
  const points = series.points;
  const title = titles[series.name] ?? series.name;
  const last = points.at(-1);
  const end = last?.[0] ?? Date.now() / 1000;
  const top = niceMax(Math.max(0, ...points.map((point) => point[1])), series.unit);
  const x = (time) => left + ((time - (end - span)) / span) * (width - left - 4);
  const y = (value) => height - bottom - (value / top) * (height - bottom - 8);
  const shown = points.filter((point) => point[0] >= end - span);
  const grid = [0, 0.5, 1].map((part) => [
    svg('line', {class: 'grid', x1: left, x2: width - 4, y1: y(top * part), y2: y(top * part)}),
    svg('text', {class: 'axis', x: left - 6, y: y(top * part) + 3.5, 'text-anchor': 'end'}, format(top * part))]);
  const times = [[span, '60 min ago', 'start'], [span / 2, '30', 'middle'], [0, 'now', 'end']].map(
    ([before, text, anchor]) => svg('text', {class: 'axis', x: x(end - before), y: height - 3, 'text-anchor': anchor},
      text));
  const lines = segments(shown, interval).map((part) => [
    part.length > 1 && svg('path', {class: 'area', d: `${path(part, x, y)} L${x(part.at(-1)[0]).toFixed(1)} ${y(0)} ` +
      `L${x(part[0][0]).toFixed(1)} ${y(0)} Z`}),
    part.length > 1 ? svg('path', {class: 'curve', d: path(part, x, y)}) :
      svg('circle', {class: 'dot', cx: x(part[0][0]), cy: y(part[0][1]), r: 2})]);
  const cursor = svg('line', {class: 'cursor', y1: 8, y2: height - bottom, visibility: 'hidden'});
  const now = last ? format(last[1]) : 'no data';
  const value = h('span', {class: 'value'}, now);
  const drawing = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label':
    `${title} of the last hour: ${last ? `now ${now}, at most ${format(Math.max(...shown.map((p) => p[1])))}` : now}`},
  grid, times, lines, cursor);
  drawing.addEventListener('pointermove', (event) => {
    const box = drawing.getBoundingClientRect();
    const time = end - span + (((event.clientX - box.left) / box.width) * width - left) / (width - left - 4) * span;
    const near = nearest(shown, time);
    if (!near) return;
    cursor.setAttribute('x1', x(near[0]));
    cursor.setAttribute('x2', x(near[0]));
    cursor.setAttribute('visibility', 'visible');
    setText(value, `${format(near[1])} at ${new Date(near[0] * 1000).toLocaleTimeString()}`);
  });
  drawing.addEventListener('pointerleave', () => {
    cursor.setAttribute('visibility', 'hidden');
    setText(value, now);
  });
  return h('figure', {class: `plot plot-${series.name}`}, h('figcaption', null, title, ' ', value), drawing);
}

function nearest(points, time) {
  const distance = (point) => Math.abs(point[0] - time);
  return points.reduce((best, point) => (!best || distance(point) < distance(best) ? point : best), null);
}

/**
 * Returns an element with the plots of a cluster, node or pod. They are drawn again until signal aborts.
 * @param {{scope: 'cluster'|'node'|'pod', namespace?: string, name?: string}} what
 * @param {AbortSignal} signal
 */
export function drawMetrics(what, signal) {
  const place = h('div', {class: 'plots'}, h('p', {class: 'muted'}, 'Loading…'));
  const follow = async () => {
    while (!signal.aborted) {
      let wait = maxRefresh;
      try {
        const {interval, series, message} = await get('/api/metrics', what, signal);
        wait = Math.max(minRefresh, Math.min(maxRefresh, interval || maxRefresh));
        const shown = (series ?? []).filter((one) => one.points?.length > 0);
        fill(place, shown.length > 0 ? shown.map((one) => plot(one, interval || maxRefresh)) :
          h('p', {class: 'muted'}, message || 'There are no measurements yet.'));
      } catch (err) {
        if (signal.aborted) return;
        fill(place, h('p', {class: 'muted'}, err.message));
      }
      await pause(wait * 1000, signal);
    }
  };
  follow();
  return place;
}

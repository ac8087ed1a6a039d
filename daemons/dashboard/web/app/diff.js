// Compares texts line by line, by the algorithm of Myers (An O(ND) Difference Algorithm and Its Variations, 1986).

const maxEdits = 1000; // beyond it, the changed part is shown as removed and added as a whole

/**
 * @typedef {{kind: 'same'|'removed'|'added', text: string}} Line
 */

/**
 * Returns the lines of both texts, with those that differ marked.
 * @returns {Line[]}
 */
export function diffLines(before, after) {
  const a = before.split('\n');
  const b = after.split('\n');
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const same = (lines) => lines.map((text) => ({kind: 'same', text}));
  return [
    ...same(a.slice(0, start)),
    ...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ...same(a.slice(a.length - end)),
  ];
}

function middle(a, b) {
  const whole = () => [
    ...a.map((text) => ({kind: 'removed', text})),
    ...b.map((text) => ({kind: 'added', text})),
  ];
  if (a.length === 0 || b.length === 0) return whole();
  const trace = shortestEdits(a, b);
  return trace ? backtrack(a, b, trace) : whole();
}

/** Returns the furthest x on each diagonal k for each number of edits, or null if there are too many. */
function shortestEdits(a, b) {
  const trace = [];
  let furthest = new Map([[1, 0]]);
  for (let edits = 0; edits <= Math.min(maxEdits, a.length + b.length); edits++) {
    trace.push(furthest);
    const next = new Map(furthest);
    for (let k = -edits; k <= edits; k += 2) {
      const goesDown = k === -edits || (k !== edits && (next.get(k - 1) ?? -1) < (next.get(k + 1) ?? -1));
      let x = goesDown ? next.get(k + 1) : next.get(k - 1) + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) {
        x++;
        y++;
      }
      next.set(k, x);
      if (x >= a.length && y >= b.length) return trace;
    }
    furthest = next;
  }
  return null;
}

function backtrack(a, b, trace) {
  const lines = [];
  let x = a.length;
  let y = b.length;
  for (let edits = trace.length - 1; edits >= 0; edits--) {
    const furthest = trace[edits];
    const k = x - y;
    const goesDown = k === -edits || (k !== edits && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
    const fromK = goesDown ? k + 1 : k - 1;
    const fromX = furthest.get(fromK) ?? 0;
    const fromY = fromX - fromK;
    while (x > fromX && y > fromY && x > 0 && y > 0) {
      x--;
      y--;
      lines.push({kind: 'same', text: a[x]});
    }
    if (edits === 0) break;
    if (goesDown) lines.push({kind: 'added', text: b[--y]});
    else lines.push({kind: 'removed', text: a[--x]});
  }
  return lines.reverse();
}

/**
 * Returns only changed lines and some around them. Left-out lines become one line of kind 'skip'.
 * @param {Line[]} lines
 * @param {number} context number of lines around a change
 */
export function hunks(lines, context = 3) {
  const isNear = new Array(lines.length).fill(false);
  lines.forEach((line, i) => {
    if (line.kind === 'same') return;
    for (let j = Math.max(0, i - context); j <= Math.min(lines.length - 1, i + context); j++) isNear[j] = true;
  });
  const out = [];
  let skipped = 0;
  lines.forEach((line, i) => {
    if (isNear[i]) {
      if (skipped) out.push({kind: 'skip', text: `${skipped} unchanged lines`});
      skipped = 0;
      out.push(line);
    } else {
      skipped++;
    }
  });
  if (skipped) out.push({kind: 'skip', text: `${skipped} unchanged lines`});
  return out;
}

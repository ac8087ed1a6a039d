// Writes JSON values as YAML 1.2 that YAML 1.1 parsers read alike.

const plain = /^[A-Za-z_/.](?:[A-Za-z0-9_./@+=~()-]|[: ](?=[A-Za-z0-9_./@+=~(]))*$/;
const reserved = /^(y|n|yes|no|on|off|true|false|null|~|\.inf|\.nan|[-+]?\.?[0-9].*)$/i;
const numeric = /^[-+]?(\.[0-9]|[0-9.]|\.inf|\.nan)/i;
// Characters that a block of literal text cannot hold.
const special = /[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd]|\x85|\u2028|\u2029/;

/** Returns a string as a scalar on one line. */
function scalarText(text) {
  if (plain.test(text) && !reserved.test(text) && !numeric.test(text) && !text.endsWith('.')) return text;
  if (/^[\x20-\x7e]*$/.test(text) && !text.includes('\\') && !text.includes('"')) return `"${text}"`;
  if (/^[\x20-\x7e]*$/.test(text)) return `'${text.replaceAll("'", "''")}'`;
  // JSON's escapes are YAML's, except that lone surrogates and controls need escapes too, which stringify writes.
  return JSON.stringify(text).replace(/[\x7f-\x9f\u2028\u2029\ufeff]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Returns the lines of a text as a literal block, or null if the block could not hold it exactly. */
function literal(text, indent) {
  if (!text.includes('\n') || special.test(text) || text.length > 1_000_000) return null;
  const lines = text.split('\n');
  if (/^[ \t]/.test(lines.find((line) => line !== '') ?? '')) return null;
  if (lines.some((line) => line !== '' && line.trim() === '')) return null;
  const ending = text.endsWith('\n') ? (/\n\n$/.test(text) || text === '\n' ? '+' : '') : '-';
  if (ending === '' || ending === '+') lines.pop();
  return [`|${ending}`, ...lines.map((line) => (line === '' ? '' : indent + line))];
}

function isEmpty(value) {
  return Array.isArray(value) ? value.length === 0 : Object.keys(value).length === 0;
}

/** Appends the lines of a value that follows a key or dash; first is the text before the value. */
function write(lines, first, value, indent, inList) {
  if (value === null || value === undefined) {
    lines.push(`${first} null`);
  } else if (typeof value === 'object' && isEmpty(value)) {
    lines.push(`${first} ${Array.isArray(value) ? '[]' : '{}'}`);
  } else if (typeof value === 'object' && inList) {
    // The first line of a nested value stands beside the dash.
    const nested = [];
    writeBlock(nested, value, `${indent}  `);
    nested[0] = first + nested[0].slice(indent.length + 1);
    lines.push(...nested);
  } else if (typeof value === 'object') {
    lines.push(first);
    writeBlock(lines, value, Array.isArray(value) ? indent : `${indent}  `);
  } else if (typeof value === 'string') {
    const block = literal(value, `${indent}  `);
    if (block) lines.push(`${first} ${block[0]}`, ...block.slice(1));
    else lines.push(`${first} ${scalarText(value)}`);
  } else {
    lines.push(`${first} ${value}`);
  }
}

function writeBlock(lines, value, indent) {
  if (Array.isArray(value)) {
    for (const item of value) write(lines, `${indent}-`, item, indent, true);
    return;
  }
  for (const [key, item] of Object.entries(value)) write(lines, `${indent}${scalarText(key)}:`, item, indent, false);
}

/**
 * Returns a JSON value as YAML.
 * @param {any} value
 * @returns {string}
 */
export function toYAML(value) {
  if (value === null || typeof value !== 'object') {
    const lines = [];
    write(lines, '', value, '', false);
    return `${lines.join('\n').trimStart()}\n`;
  }
  if (isEmpty(value)) return Array.isArray(value) ? '[]\n' : '{}\n';
  const lines = [];
  writeBlock(lines, value, '');
  return `${lines.join('\n')}\n`;
}

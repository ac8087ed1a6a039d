// Formats times and amounts.

/** Returns a duration in seconds as kubectl prints ages, such as 5d3h. */
function duration(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  const minutes = Math.floor(s / 60);
  const hours = Math.floor(s / 3600);
  const days = Math.floor(s / 86400);
  if (s < 120) return `${s}s`;
  if (minutes < 10) return s % 60 ? `${minutes}m${s % 60}s` : `${minutes}m`;
  if (hours < 3) return `${minutes}m`;
  if (hours < 8) return minutes % 60 ? `${hours}h${minutes % 60}m` : `${hours}h`;
  if (hours < 48) return `${hours}h`;
  if (days < 8) return hours % 24 ? `${days}d${hours % 24}h` : `${days}d`;
  if (days < 730) return `${days}d`;
  return `${Math.floor(days / 365)}y`;
}

/** Returns the age of a time in RFC 3339. */
export function age(time, now = Date.now()) {
  const at = Date.parse(time);
  return Number.isNaN(at) ? '' : duration((now - at) / 1000);
}

/** Returns a time in the visitor's time zone. */
export function localTime(time) {
  const at = new Date(time);
  return Number.isNaN(at.getTime()) ? '' : at.toLocaleString(undefined, {dateStyle: 'medium', timeStyle: 'medium'});
}

/** Returns an amount of bytes, such as 1.5 GiB. */
export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let at = 0;
  let value = n;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at++;
  }
  return `${round(value)} ${units[at]}`;
}

/** Returns an amount of processor cores, such as 250m. */
export function cores(n) {
  return n > 0 && n < 1 ? `${Math.round(n * 1000)}m` : round(n);
}

function round(n) {
  const digits = n >= 100 || Number.isInteger(n) ? 0 : n >= 10 ? 1 : 2;
  return n.toFixed(digits);
}

/** Returns a number with separators, such as 50,000. */
export function count(n) {
  return n.toLocaleString('en');
}

/** Returns a number with its noun, such as 1 pod or 3 pods. */
export function plural(n, noun) {
  return `${count(n)} ${noun}${n === 1 ? '' : 's'}`;
}

const goodWords = new RegExp('^(running|ready|active|bound|true|succeeded|complete|completed|available|healthy|' +
  'approved.*|normal)$', 'i');
const badWords = new RegExp('^(failed|error|crashloopbackoff|errimagepull|imagepullbackoff|oomkilled|evicted|lost|' +
  'notready.*|createcontainer.*error|invalidimagename|runcontainererror|init:(error|crashloopbackoff|.*backoff)|' +
  'denied|stalled|deadlineexceeded)$', 'i');
const pendingWords = new RegExp('^(pending|containercreating|podinitializing|terminating|unknown|released|' +
  'init:.*|progressing|suspended|warning|.*schedulingdisabled.*)$', 'i');

/**
 * Returns how a status is shown.
 * @returns {'ok'|'warn'|'bad'|''}
 */
export function tone(status) {
  if (goodWords.test(status)) return 'ok';
  if (badWords.test(status)) return 'bad';
  return pendingWords.test(status) ? 'warn' : '';
}

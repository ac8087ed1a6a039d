// Characters of a terminal: how wide they are, and the set for drawing lines.

/** Returns the width of a character in cells: wide ones are East Asian letters and emoji. */
export function charWidth(char) {
  const code = char.codePointAt(0);
  if (code < 0x300) return 1;
  if (/\p{Mn}|\p{Me}|\u200b|\u200d|\ufe0f/u.test(char)) return 0;
  const isWide = (code >= 0x1100 && code <= 0x115f) || (code >= 0x2e80 && code <= 0xa4cf) ||
    (code >= 0xac00 && code <= 0xd7a3) || (code >= 0xf900 && code <= 0xfaff) || (code >= 0xfe30 && code <= 0xfe6f) ||
    (code >= 0xff00 && code <= 0xff60) || (code >= 0xffe0 && code <= 0xffe6) || (code >= 0x1f300 && code <= 0x1faff) ||
    (code >= 0x20000 && code <= 0x3fffd);
  return isWide ? 2 : 1;
}

/** The characters of the set for drawing lines (DEC Special Graphics), by those that select them. */
export const lineDrawing = Object.fromEntries([...'`afgjklmnopqrstuvwxyz{|}~'].map((c, i) => [c,
  [...'◆▒°±┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·'][i]]));

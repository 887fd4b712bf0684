// @ts-check
/* The difference of two texts, word by word: the longest common sequence of words stays, the rest of the second text is new. */

const MOST_WORDS = 1200;

/**
 * The second text in pieces; those that the first does not have are new.
 *
 * @param {string} before
 * @param {string} after
 * @returns {{ text: string, isNew: boolean }[]}
 */
export function wordDifference(before, after) {
  const [old, now] = [wordsOf(before), wordsOf(after)];
  if (old.length > MOST_WORDS || now.length > MOST_WORDS) return [{ text: after, isNew: false }];
  const width = now.length + 1;
  const lengths = new Uint16Array((old.length + 1) * width);
  for (let row = old.length - 1; row >= 0; row -= 1)
    for (let column = now.length - 1; column >= 0; column -= 1)
      lengths[row * width + column] =
        old[row] === now[column]
          ? lengths[(row + 1) * width + column + 1] + 1
          : Math.max(lengths[(row + 1) * width + column], lengths[row * width + column + 1]);
  /** @type {{ text: string, isNew: boolean }[]} */
  const pieces = [];
  let row = 0;
  now.forEach((word, column) => {
    while (row < old.length && old[row] !== word && lengths[(row + 1) * width + column] >= lengths[row * width + column + 1]) row += 1;
    const isNew = old[row] !== word;
    if (!isNew) row += 1;
    const last = pieces.at(-1);
    if (last && last.isNew === isNew) last.text += word;
    else pieces.push({ text: word, isNew });
  });
  return pieces;
}

/** Words with the spaces after them; each Chinese character is a word. */
function wordsOf(/** @type {string} */ text) {
  return text.match(/[\u2e80-\uffef]|[^\s\u2e80-\uffef]+\s*|\s+/g) ?? [];
}

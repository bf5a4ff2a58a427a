// A colour and a letter for each job. Does: gives eight colours that colour-blind people can tell
// apart (Okabe and Ito), and a letter that tells jobs of one colour apart. State: what was given.

const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b3a800", "#7a5fb5"];
const DARK_TEXT = new Set(["#e69f00", "#56b4e9", "#b3a800", "#cc79a7", "#009e73", "#d55e00"]);
const given = new Map();

function letters(number) {
  const letter = String.fromCharCode(65 + (number % 26));
  return number < 26 ? letter : letters(Math.floor(number / 26) - 1) + letter;
}

/** The mark of a job: `colour`, `text` (colour on it) and `letter`; the same while the page is open. */
export function markOf(job) {
  if (!given.has(job)) {
    const number = given.size;
    const colour = COLOURS[number % COLOURS.length];
    given.set(job, { colour, text: DARK_TEXT.has(colour) ? "#000000" : "#ffffff", letter: letters(number) });
  }
  return given.get(job);
}

// Numbers and times in words, as numbers.py writes them.

const UNKNOWN = "–";
const whole = (number) => Math.floor(number + 0.5).toLocaleString("en-US");

function hours(seconds) {
  const tenths = (seconds / 3600).toFixed(1).split(".");
  return `${Number(tenths[0]).toLocaleString("en-US")}.${tenths[1]} h`;
}

function span(seconds) {
  if (seconds < 9.95 && seconds % 1) return `${seconds.toFixed(1)} s`;
  if (seconds < 99.5) return `${whole(seconds)} s`;
  if (seconds < 99.5 * 60) return `${whole(seconds / 60)} min`;
  return hours(seconds);
}

const plural = (number, word) => `${number.toLocaleString("en-US")} ${word}${number === 1 ? "" : "s"}`;

// The file keeps one offset from UTC for all its times, and says which.
function moment(seconds, about, withDay = true) {
  const at = new Date((seconds + about.zone) * 1000);
  if (Number.isNaN(at.getTime())) return UNKNOWN;
  const text = at.toISOString();
  const clock = text.slice(11, about.tick < 1 ? 22 : 19);
  return withDay ? `${text.slice(0, 10)} ${clock}` : clock;
}

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "text") made.textContent = value;
    else if (key === "class") made.className = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}
